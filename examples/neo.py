"""neo.py: a trained model in Python: predictions with training's bits, text, weights by name. Needs
numpy and neo as a shared object, which make build/libneo_serve.so makes, or without make:
    cc -O2 -shared -fPIC -DNEO_SHARED -DNEO_INFERENCE -DNEO_IMPLEMENTATION -x c neo_serve.h \
        -o libneo_serve.so -lm -pthread
    import neo                                          (PYTHONPATH=examples)
    model = neo.Model("build/demo/checkpoint", library="build/libneo_serve.so")
    model.predict([{"age": 39, "workclass": "State-gov"}])        array([0.8066428], dtype=float32)
    neo.weights("build/demo/checkpoint")["bottom.0.weight"]       of the newest checkpoint
A GPT has generate("To be"). PyTorch loads weights by torch.from_numpy. A model is of one thread."""
import ctypes as c, glob, json, os, re, numpy as np


def struct(fields):
    kinds = {"s": c.c_char_p, "p": c.c_void_p, "q": c.c_int64, "i": c.c_int, "d": c.c_double,
             "4": c.c_int64 * 4, "x": c.c_int64 * 64}
    pairs = [(f[:-2], kinds[f[-1]]) for f in fields.split()]
    return type("neo_struct", (c.Structure,), {"_fields_": pairs})


ModelDesc = struct("dir:s path:s step:q rows:i ctx:x")  # the context: all defaults
ModelInfo = struct("kind:s step:q dense_count:i feature_count:i column_count:i outputs:i "
                   "weighted:i weight_bytes:q context:q")
Feature = struct("name:s rows:q words:q rare:q dropped:q")
ScratchDesc = struct("max_batch:q max_ids:q threads:i logits:i")
DecoderDesc = struct("chunk:q threads:i")
Sampling = struct("temperature:d top_k:q seed:q")
Tensor = struct("data:p shape:4 stride:4 ndim:i dtype:i place:i absent:s")
Jagged = struct("batch:q features:i dtype:i offsets:p ids:p weights:p bags:p place:i inverse:p")
F32, I64 = 0, 7  # neo_dtype
DTYPES = dict(F32="<f4", F64="<f8", F16="<f2", BF16="<u2", I8="i1", U8="u1", I32="<i4", I64="<i8")


class Model:
    def __init__(self, path, library="libneo_serve.so", step=0, max_batch=1024, max_ids=0,
                 threads=1, logits=False):
        self.neo = c.CDLL(os.path.abspath(library))
        self.model, self.scratch, self.decoder = (c.c_void_p() for _ in range(3))
        names = "last_error model_column model_get_info model_feature scratch_count"
        for n, k in zip(names.split(), (c.c_char_p, c.c_char_p, ModelInfo, Feature, c.c_int64)):
            getattr(self.neo, "neo_" + n).restype = k
        where = "path" if os.path.isfile(path) else "dir"  # a file of neo_model_write: path
        desc = ModelDesc(step=step, **{where: os.fsencode(path)})
        self.call("neo_model_load", c.byref(desc), c.byref(self.model))
        info = self.info = self.neo.neo_model_get_info(self.model)
        made = (("decoder", DecoderDesc(0, threads), self.decoder) if info.context else
                ("scratch", ScratchDesc(max_batch, max_ids, threads, logits), self.scratch))
        self.call("neo_%s_create" % made[0], self.model, c.byref(made[1]), c.byref(made[2]))
        self.max_batch, self.step = max_batch, info.step
        columns = [self.neo.neo_model_column(self.model, i) for i in range(info.column_count)]
        self.columns = [name.decode() for name in columns if name]  # the label has none
        features = [self.neo.neo_model_feature(self.model, i) for i in range(info.feature_count)]
        self.features = {f.name.decode(): f.rows for f in features}

    def __del__(self):
        if getattr(self, "neo", None):
            self.neo.neo_scratch_destroy(self.scratch)
            self.neo.neo_decoder_destroy(self.decoder)
            self.neo.neo_model_free(self.model)

    def call(self, name, *args):
        if getattr(self.neo, name)(*args):
            raise ValueError(self.neo.neo_last_error().decode(errors="replace"))

    def predict(self, samples):
        """f32 [n]: of samples as dicts by column, or as lines (str) of the training format."""
        if self.info.context:
            raise TypeError("a GPT predicts by generate")
        if isinstance(samples, (dict, str)):
            raise TypeError("expected a list of samples, not one sample: [...]")
        out, n = np.zeros((len(samples), self.info.outputs), np.float32), 0
        self.neo.neo_scratch_clear(self.scratch)
        for s in samples:
            add, text = ("line", s) if isinstance(s, str) else ("json", json.dumps(s))
            add, text = "neo_scratch_add_" + add, text.encode()
            if getattr(self.neo, add)(self.scratch, text, c.c_size_t(len(text))):
                n = self.flush(out, n)  # it was full, of samples or of ids
                self.call(add, self.scratch, text, c.c_size_t(len(text)))
        self.flush(out, n)
        return np.squeeze(out, 1) if self.info.outputs == 1 else out

    def flush(self, out, n):
        self.call("neo_scratch_predict", self.scratch, c.c_void_p(out[n:].ctypes.data))
        n += self.neo.neo_scratch_count(self.scratch)
        self.neo.neo_scratch_clear(self.scratch)
        return n

    def predict_ids(self, dense, ids, offsets=None, weights=None):
        """f32 [n]: of numbers as training had them: dense [n, dense_count]; ids [n, features], or
        with offsets [features * n + 1] those of all bags, feature after feature; weights alike."""
        dense, turn = np.ascontiguousarray(dense, np.float32), offsets is None
        n, features = len(dense), self.info.feature_count
        ids, weights = (a if a is None else np.ascontiguousarray(np.transpose(a) if turn else a, t)
                        for a, t in ((ids, np.int64), (weights, np.float32)))
        offsets = np.ascontiguousarray(np.arange(features * n + 1) if turn else offsets, np.int64)
        wrong = (turn and ids.shape != (features, n)) or offsets.shape != (features * n + 1,)
        wrong |= n > self.max_batch or getattr(weights, "shape", ids.shape) != ids.shape
        if wrong or ids.size < offsets[-1]:
            raise ValueError("not of %d bags, up to %d samples" % (features * n, self.max_batch))
        out = np.zeros((n, self.info.outputs), np.float32)
        x = Tensor(dense.ctypes.data, dense.shape, (dense.shape[1], 1), 2, F32)
        sparse = Jagged(n, features, I64, offsets.ctypes.data, ids.ctypes.data,
                        None if weights is None else weights.ctypes.data)
        self.call("neo_model_predict", self.model, self.scratch, x, c.byref(sparse), out.ctypes)
        return np.squeeze(out, 1) if self.info.outputs == 1 else out

    def generate(self, prompt="", tokens=100, **sampling):
        """Bytes behind a prompt (byte pairs: tokens behind tokens), see neo_decoder_add_json."""
        if not self.info.context:
            raise TypeError("only a GPT generates: this model predicts")
        text, s = json.dumps({"prompt": prompt, **sampling}).encode(), Sampling(0.8)
        out, n, d = np.zeros(tokens, np.int64), c.c_int64(tokens), self.decoder
        self.call("neo_decoder_add_json", d, text, c.c_size_t(len(text)), c.byref(s), c.byref(n))
        self.call("neo_decoder_generate", d, c.byref(s), n, out.ctypes, c.byref(n))
        of = [self.neo.neo_model_byte(self.model, c.c_int64(t)) for t in out[:n.value]]
        return out[:n.value].tolist() if -1 in of else bytes(of)


def read_safetensors(path):
    """Name, array of each tensor; bf16 as f32."""
    with open(path, "rb") as f:
        tensors = json.loads(f.read(size := int.from_bytes(f.read(8), "little")))
    for name, at in tensors.items():
        if name != "__metadata__":
            first, end = at["data_offsets"]
            a = np.fromfile(path, DTYPES[at["dtype"]], offset=8 + size + first,
                            count=(end - first) // np.dtype(DTYPES[at["dtype"]]).itemsize)
            a = (a.astype(np.uint32) << 16).view(np.float32) if at["dtype"] == "BF16" else a
            yield name, a.reshape(at["shape"])


def weights(path, step=None):
    """The weights of a checkpoint by name, whole also where ranks saved parts of them."""
    folder = "step-" + ("%012d" % step if step is not None else "[0-9]" * 12)
    if not (steps := glob.glob(os.path.join(path, folder, "manifest.json"))):
        raise FileNotFoundError("%s: no whole checkpoint" % path)
    whole, parts = {}, {}
    for file in glob.glob(os.path.join(os.path.dirname(max(steps)), "model-*.safetensors")):
        for name, a in read_safetensors(file):
            if name.endswith(".rows"):
                raise ValueError("%s: differential: build/merge makes it whole" % file)
            if part := re.fullmatch(r"(.*)\[(\d+:\d+(?:,\d+:\d+)?)\]", name):
                cut = tuple(slice(*map(int, k.split(":"))) for k in part[2].split(","))
                parts.setdefault(part[1], []).append((cut, a))
            else:
                whole[name] = a
    for name, cuts in parts.items():
        shape = [max(d.stop for d in dims) for dims in zip(*(cut for cut, _ in cuts))]
        whole[name] = np.zeros(shape, cuts[0][1].dtype)
        for cut, a in cuts:
            whole[name][cut] = a
    return whole
