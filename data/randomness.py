"""Randomness as a function of (run seed, purpose, client, round, block).

Every draw comes from a counter-based generator keyed by what it is for. Indices and noise are therefore the same
at any chunk width, on any engine, and after any resume: there is no generator state to save.
"""

import zlib

import numpy as np


def generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A fresh generator for one purpose, e.g. `generator(0, "batch", client, round, block)`."""
    key = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *indices])
    return np.random.Generator(np.random.Philox(key))
