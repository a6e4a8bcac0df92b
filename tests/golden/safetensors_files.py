"""Makes safetensors.safetensors with Python's safetensors package, for tests/files/safetensors.c;
with --check FILE DIR reads a checkpoint that neo wrote (its two files and index) and prints what is
in it.
Pinned: see common.py. Run by hand from this directory."""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file


def make():
    tensors = {
        "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) - 2.5,
        "i64": torch.tensor([-2**63, 0, 2**63 - 1], dtype=torch.int64),
        "u8": torch.tensor([[0, 1], [254, 255]], dtype=torch.uint8),
        "i8": torch.tensor([-128, 127], dtype=torch.int8),
        "i32": torch.tensor([-2**31, 2**31 - 1], dtype=torch.int32),
        "scalar": torch.tensor(0.25),
        "f16": torch.tensor([1.0, -0.5, 96.0], dtype=torch.float16),
        "bf16": torch.tensor([1.0, -0.5, 96.0], dtype=torch.bfloat16),
        "f8e4m3": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        "f8e5m2": torch.tensor([1.0, -2.0]).to(torch.float8_e5m2),
        "empty": torch.zeros(0, 4),
        "f64": torch.tensor([1.0], dtype=torch.float64),
    }
    save_file(tensors, "safetensors.safetensors", metadata={"made by": "safetensors \u20ac"})


def check(directory):
    index = json.load(open(os.path.join(directory, "model.safetensors.index.json")))
    total = 0
    for kind in "model", "state":
        name = kind + "-00001-of-00001.safetensors"
        for key, tensor in sorted(load_file(os.path.join(directory, name)).items()):
            print(name, key, tensor.dtype, tuple(tensor.shape), float(tensor.double().sum()))
            if kind == "model":
                assert index["weight_map"].pop(key) == name
                total += tensor.numel() * tensor.element_size()
    assert not index["weight_map"] and index["metadata"]["total_size"] == total
    print("manifest", json.load(open(os.path.join(directory, "manifest.json"))))


if __name__ == "__main__":
    check(sys.argv[2]) if len(sys.argv) == 3 and sys.argv[1] == "--check" else make()
