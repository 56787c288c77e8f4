"""Bitmaps: sets of integers."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand


class Bitmaps(Operand):
    """Bitmap methods."""

    def bitmap_build(self) -> Self:
        """Return a bitmap of an array's numbers."""
        return self._called("BITMAP_BUILD")

    def bitmap_from_bytes(self) -> Self:
        """Deserialize a bitmap from bytes."""
        return self._called("BITMAP_FROM_BYTES")

    def bitmap_to_bytes(self) -> Self:
        """Serialize the bitmap to bytes."""
        return self._called("BITMAP_TO_BYTES")

    def bitmap_to_array(self) -> Self:
        """Return the sorted numbers as an array."""
        return self._called("BITMAP_TO_ARRAY")

    def bitmap_to_string(self) -> Self:
        """Return the sorted numbers as a string."""
        return self._called("BITMAP_TO_STRING")

    def bitmap_cardinality(self) -> Self:
        """Return how many numbers the bitmap has."""
        return self._called("BITMAP_CARDINALITY")

    def bitmap_and(self, bitmap2: object) -> Self:
        """Return the numbers in both bitmaps."""
        return self._called("BITMAP_AND", bitmap2)

    def bitmap_or(self, bitmap2: object) -> Self:
        """Return the numbers in either bitmap."""
        return self._called("BITMAP_OR", bitmap2)

    def bitmap_xor(self, bitmap2: object) -> Self:
        """Return the numbers in exactly one of the two bitmaps."""
        return self._called("BITMAP_XOR", bitmap2)

    def bitmap_andnot(self, bitmap2: object) -> Self:
        """Return the numbers that are not in the other bitmap."""
        return self._called("BITMAP_ANDNOT", bitmap2)

    # --- over many rows ----------------------------------------------------------------------------------------------

    def bitmap_build_agg(self) -> Self:
        """Return a bitmap of the numbers of all rows."""
        return self._called("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Self:
        """Return how many distinct numbers all rows have."""
        return self._called("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_and_agg(self) -> Self:
        """Return the numbers that are in the bitmaps of all rows."""
        return self._called("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmaps of all rows."""
        return self._called("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_or_agg(self) -> Self:
        """Return the numbers that are in the bitmap of any row."""
        return self._called("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmap of any row."""
        return self._called("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_xor_agg(self) -> Self:
        """Return the numbers that are in the bitmaps of an odd number of rows."""
        return self._called("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmaps of an odd number of rows."""
        return self._called("BITMAP_XOR_CARDINALITY_AGG")
