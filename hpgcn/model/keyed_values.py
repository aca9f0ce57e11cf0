"""Numbers that depend only on a seed, a name and their place."""
import hashlib

import numpy as np


def keyed_uniform(seed: int, name: str, count: int, first: int = 0) -> np.ndarray:
    """Return numbers [first, first + count) of a sequence keyed by (seed, name).

    They are float64 in [0, 1). `first` is a multiple of 4.
    """
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    # NumPy keeps the raw bits of Philox stable; a count of its counter gives four of them
    drawn = np.random.Philox(key=key).advance(first // 4).random_raw(count)
    return (drawn >> np.uint64(11)) * 2.0**-53
