"""Ids as TorchRec's materialize_synthetic_multihot_dataset.py writes them: numpy.savez of i32
[samples, ids of a sample] under the names 0, 1, ..."""
import os

import numpy as np

import common


def make():
    sample = np.arange(5)[:, None]
    np.savez(os.path.join(common.HERE, "multi_hot.npz"), **{
        str(k): ((7 * sample + 3 * k + 11 * np.arange(hot)) % (10 + k)).astype(np.int32)
        for k, hot in enumerate([3, 1, 2])
    })
