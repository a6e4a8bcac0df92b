#!/usr/bin/env python3
"""Makes the golden files of the tests. Run by hand; the tests read the files and need no Python.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install -r tests/golden/requirements.txt
    /tmp/golden/bin/python tests/golden/make.py

writes every tests/golden/*.safetensors, multi_hot.npz and dlrm_models.* anew. Seeds are fixed: with
these versions the files do not change. Their readers are tests/golden/*.c, each of which names the
tensors it uses, tests/data/formats.c and tests/programs/dlrm.sh.
"""
import os

import torch

import common
import make_bags
import make_dense
import make_dlrm
import make_gpt
import make_npz
import safetensors_files

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    make_bags.make()
    make_dense.make()
    make_dlrm.make()
    make_gpt.make()
    make_npz.make()
    os.chdir(common.HERE)
    safetensors_files.make()
