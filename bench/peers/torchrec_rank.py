"""One rank of ranks.py's peer: torchrec over gloo. Reads commands, a number of steps each, and
answers with the mean loss of the last one's batch on this rank."""

import os
import sys
import warnings

rank, ranks, directory, threads = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], 1
os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                  LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torchrec  # noqa: E402
from fbgemm_gpu.split_embedding_configs import EmbOptimType  # noqa: E402
from models import TABLES, Dense  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.distributed.sharding_plan import (  # noqa: E402
    construct_module_sharding_plan, table_wise)
from torchrec.distributed.types import ShardingEnv, ShardingPlan  # noqa: E402

LR = 0.01


class Model(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        dim = job["bottom"][-1]
        tables = [torchrec.EmbeddingBagConfig(name="C%d" % (t + 1), feature_names=["f%d" % t],
                                              embedding_dim=dim, num_embeddings=job["rows"])
                  for t in range(TABLES)]
        self.ebc = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=tables)
        self.dense = Dense(job["bottom"], job["top"])
        self.order = None

    def forward(self, dense, features, label):
        pooled = self.ebc(features)  # on its way
        pooled = pooled.wait() if hasattr(pooled, "wait") else pooled
        if self.order is None:  # of the tables: those of rank 0 come first
            keys = pooled.keys()
            self.order = torch.tensor([keys.index("f%d" % t) for t in range(TABLES)])
        rows = pooled.values().view(len(label), TABLES, -1)
        return self.dense(dense, rows.index_select(1, self.order), label)


def main():
    torch.set_num_threads(threads)
    job = torch.load(os.path.join(directory, "job.pt"))
    meet = "file://" + os.path.join(directory, "meet")
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    model = Model(job)
    sharder = EmbeddingBagCollectionSharder(fused_params={
        "optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": LR, "eps": 1e-8})
    places = {"C%d" % (t + 1): table_wise(rank=r, compute_kernel="fused")
              for t, r in enumerate(job["place"])}
    plan = construct_module_sharding_plan(model.ebc, places, sharder=sharder, local_size=ranks,
                                          world_size=ranks, device_type="cpu")
    with torch.no_grad():
        for p, w in zip(model.dense.parameters(), job["layers"]):
            p.copy_(w)
    whole = DistributedModelParallel(model, device=torch.device("cpu"),
                                     env=ShardingEnv.from_process_group(dist.group.WORLD),
                                     plan=ShardingPlan({"ebc": plan}), sharders=[sharder])
    mine = 0
    for name, p in whole.named_parameters():
        for t in range(TABLES):
            # Another rank's has no elements.
            if name.endswith(".C%d.weight" % (t + 1)) and p.numel():
                p.data.copy_(job["tables"][t])
                mine += 1
    if mine != sum(r == rank for r in job["place"]):
        raise AssertionError("rank %d has %d tables" % (rank, mine))
    layers = [p for name, p in whole.named_parameters() if "dense." in name]
    optim = torch.optim.Adagrad(layers, lr=LR, eps=1e-10, fused=True)
    n = job["label"].shape[1] // ranks
    part = slice(rank * n, (rank + 1) * n)
    keys = ["f%d" % t for t in range(TABLES)]
    batches = []
    for dense, ids, label in zip(job["dense"], job["ids"], job["label"]):
        features = torchrec.KeyedJaggedTensor(
            keys=keys, values=ids[:, part].reshape(-1),
            lengths=torch.ones(TABLES * n, dtype=torch.int64))
        batches.append((dense[part].contiguous(), features, label[part]))
    print("ready", flush=True)
    step = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            loss = whole(*batches[step % len(batches)])
            loss.backward()
            optim.step()
            optim.zero_grad(set_to_none=True)
            step += 1
        print(float(loss.detach()), flush=True)


if __name__ == "__main__":
    main()
