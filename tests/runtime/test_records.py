"""Batches of records."""

from __future__ import annotations

import pytest

from penstock.runtime.records import Batch


@pytest.mark.parametrize(
    "other", [Batch([1, 3], [5, 6], b"\0\1"), Batch([1, 2], [5, 7], b"\0\1"), Batch([1, 2], [5, 6], b"\0\0"), [1, 2]]
)
def test_a_batch_equals_one_of_the_same_records(other: object) -> None:
    """Values, times and kinds: tests say with this what an operator has emitted."""
    batch = Batch([1, 2], [5, 6], b"\0\1")
    assert batch == Batch([1, 2], [5, 6], b"\0\1")
    assert batch != other
