"""Random texts for many events at once.

The texts of a chunk of events lie side by side in a pool of letters that is generated once. A column is a slice of the
pool, with the offsets of its texts, so no letter is copied.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.table.connectors.chance import Chance, Integers

_POOL_BYTES: Final = 16 << 20
_SPACES: Final = 13


def words(chance: Chance, lane: int, below: int) -> pa.Array:
    """Return texts of letters and occasional spaces, with lengths from 3 to below `below`."""
    return _texts(chance, lane, 3 + chance.below(below - 3, lane), has_spaces=True)


def filling(chance: Chance, lane: int, sizes: Integers, average: int) -> pa.Array:
    """Return texts that pad sizes to an average, plus or minus a fifth. Empty if the size is already reached."""
    room = np.maximum(average - sizes, 0)
    spread = np.rint(room * 0.2).astype(np.int64)
    return _texts(chance, lane, room - spread + chance.below(np.maximum(2 * spread, 1), lane), has_spaces=False)


def _texts(chance: Chance, lane: int, lengths: Integers, *, has_spaces: bool) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not total:
        return pa.array([""] * len(lengths), pa.string())
    pool = _pool(has_spaces)
    # The start does not depend on how many texts follow, so a shorter stream is a prefix of a longer one.
    begin = int(chance.bits(lane + 1)[0]) % len(pool)
    if begin + total > len(pool):
        pool = pool * ((begin + total) // len(pool) + 1)
    data = pa.py_buffer(pool).slice(begin, total)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), data])


@lru_cache(maxsize=2)
def _pool(has_spaces: bool) -> bytes:
    chance = Chance(int(has_spaces), np.arange(_POOL_BYTES // 8, dtype=np.int64))
    draws = chance.bits(0).view(np.uint8)
    letters = (draws % 26 + ord("a")).astype(np.uint8)
    if has_spaces:
        letters[chance.bits(1).view(np.uint8) % _SPACES == 0] = ord(" ")
    return letters.tobytes()
