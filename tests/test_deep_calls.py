"""Trees that are too deep are refused with a sentence, also by the first call that meets one (H1)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from penstock.base.copies import DEEP_CALLS_MAX, repeats_if_deep
from penstock.base.errors import UnsupportedError


@pytest.fixture
def python_limit() -> Iterator[int]:
    """Python's own limit, as a process has it before it meets a deep tree."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield 1_000
    sys.setrecursionlimit(before)


@repeats_if_deep
def count_levels(levels: int) -> int:
    return _count(levels)


def _count(levels: int) -> int:
    return 0 if levels == 0 else 1 + _count(levels - 1)


def test_a_deep_tree_raises_the_limit(python_limit: int) -> None:
    assert count_levels(2 * python_limit) == 2 * python_limit
    assert sys.getrecursionlimit() == DEEP_CALLS_MAX


def test_a_tree_too_deep_is_refused_at_the_first_call_and_at_later_ones(python_limit: int) -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="nests too deep"):
            count_levels(2 * DEEP_CALLS_MAX)
