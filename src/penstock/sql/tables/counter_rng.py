"""Random numbers that depend only on a seed and the row number (G8), for many rows at once."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bits: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_STEP: Final = 0x9E3779B97F4A7C15
_LANE: Final = 0xD1B54A32D192ED03
_MASK: Final = 2**64 - 1


class Chance:
    """Random draws for rows. Each property of a row has its own lane, so properties are independent."""

    def __init__(self, seed: int, numbers: Integers) -> None:
        self._seed = seed
        self._bits: Bits = numbers.astype(np.uint64) * np.uint64(_STEP)

    def below(self, limit: int | Integers, lane: int) -> Integers:
        """Return integers from 0 up to a positive limit, exclusive."""
        numbers: Integers = (self.bits(lane) % np.asarray(limit).astype(np.uint64)).astype(np.int64)
        return numbers

    def unit(self, lane: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return floats from 0 up to 1, exclusive."""
        numbers: np.ndarray[Any, np.dtype[np.float64]] = (self.bits(lane) >> np.uint64(11)).astype(
            np.float64
        ) * 2.0**-53
        return numbers

    def price(self, lane: int) -> Integers:
        """Return prices from 100 to 100 million, equally many in each power of ten."""
        return np.rint(10.0 ** (self.unit(lane) * 6.0 + 2.0)).astype(np.int64)

    def bits(self, lane: int) -> Bits:
        """Return well-mixed 64-bit numbers (SplitMix64)."""
        x = self._bits + np.uint64((self._seed * _STEP + lane * _LANE) & _MASK)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Bits = x ^ (x >> np.uint64(31))
        return mixed
