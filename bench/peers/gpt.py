"""One training step of examples/train/gpt (forward, loss, backward, clipping, AdamW; one rank)
against PyTorch, fused AdamW, eager and under torch.compile."""

import ctypes
import json
import os
import tempfile

from common import Neo, Report, Turns, begin, torch_with

args = begin(__doc__)
torch = torch_with(args)
from models import Gpt  # noqa: E402: after the cores are chosen

neo, report = Neo("gpt"), Report(args, "gpt step")
TEXT = b"examples/data/shakespeare/input.txt"


def read_safetensors(path):
    """{name: tensor} of f32 tensors."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    found = {}
    for name, t in header.items():
        if t["dtype"] == "F32":
            memory = bytearray(data[slice(*t["data_offsets"])])
            found[name] = torch.frombuffer(memory, dtype=torch.float32).view(t["shape"])
    return found


class Peer:
    def __init__(self, layers, heads, width, context, batch, weights, compiled):
        self.model = Gpt(layers, heads, width, context, neo.vocabulary())
        self.model.load_state_dict(weights)
        self.call = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.002, betas=(0.9, 0.99),
                                       weight_decay=0.1, fused=True)
        self.ids = torch.zeros(batch, context, dtype=torch.int64)
        self.targets = torch.zeros_like(self.ids)

    def step(self, number):
        neo.batch(number, self.ids.data_ptr(), self.targets.data_ptr())
        loss = self.call(self.ids, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss.detach()


def measure(layers, heads, width, context, batch, targets, turns, milliseconds):
    what = "%d layers, width %d, %d x %d" % (layers, width, batch, context)
    neo.start(args.threads, layers, heads, width, context, batch, TEXT)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "weights")
        neo.write(path.encode())
        weights = read_safetensors(path)
        sizes = (layers, heads, width, context, batch)
        peers = {name: Peer(*sizes, weights, name == "compile") for name in targets}
    loss = ctypes.c_double()
    # The rate warms up in neither; what a step is wrong by shows in those after it.
    for i in range(6):
        neo.run(1, ctypes.byref(loss))
        for name, peer in list(peers.items()):
            try:
                theirs = float(peer.step(i))
            except Exception as error:  # there is no compiler for it, for one
                if name != "compile":
                    raise
                reason = "torch.compile: %s" % str(error).splitlines()[0][:100]
                report.skip(what, name, reason, targets[name])
                del peers[name]
                continue
            if not abs(loss.value - theirs) <= 2e-4 * theirs:
                text = "%s: the loss of step %d is %g, PyTorch's %g (%s)"
                raise AssertionError(text % (what, i, loss.value, theirs, name))
    subjects = {"neo": lambda i: neo.run(1, None)}
    subjects.update({name: peer.step for name, peer in peers.items()})
    result = Turns(args, subjects, turns=turns, milliseconds=milliseconds).run()
    for name in peers:
        report.turns(what, result, name, targets[name])
    neo.stop()


measure(4, 4, 128, 64, 12, {"eager": 1.5, "compile": None}, 15, 100)
batch, turns = (2, 5) if args.quick else (12, 7)
measure(12, 12, 768, 64, batch, {"eager": 1.5, "compile": 1.2}, turns, 1)
