"""Rows by the hashes of their keys: what is found is what came, however it lies."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from penstock.sql.stream.joins import sides as hash_index
from penstock.sql.stream.joins.sides import HashIndex

HASHES = st.lists(st.sampled_from([-(1 << 63), -2, -1, 0, 1, 2, 3, (1 << 63) - 1]), min_size=1, max_size=12)


def hashes(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def found(index: HashIndex, *asked: int) -> dict[int, list[int]]:
    of_key, numbers = index.found(hashes(*sorted(set(asked))))
    assert list(of_key) == sorted(of_key)
    by_hash: dict[int, list[int]] = {}
    for key, number in zip(of_key.tolist(), numbers.tolist(), strict=True):
        by_hash.setdefault(sorted(set(asked))[key], []).append(number)
    return {key: sorted(of) for key, of in by_hash.items()}


@pytest.fixture(params=["as it is", "small chunks", "all alike at first sight", "always in order", "few in the table"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"_CHUNK_ROWS": 4, "_COMPARED_MIN": 1, "_MANY": 2}
    sizes: dict[str, dict[str, Any]] = {
        "as it is": {},
        "small chunks": small,
        "all alike at first sight": {**small, "_compute_marks": np.zeros_like},
        "always in order": {"_ASKED_MAX": 0, "_FACTOR": 2},
        "few in the table": {"_FEW_MAX": 9, "_MANY": 1, "_COMPARED_MIN": 8},
    }
    for name, size in sizes[request.param].items():
        monkeypatch.setattr(hash_index, name, size)


@pytest.mark.usefixtures("sizes")
def test_what_is_found_is_what_came() -> None:
    # One test for all sizes: hypothesis does not go with a fixture for each example.
    @given(st.lists(st.tuples(HASHES, HASHES, st.booleans()), max_size=12))
    def holds(steps: list[tuple[list[int], list[int], bool]]) -> None:
        index, came = HashIndex(), []
        for new, asked, asks in steps:
            index.add(hashes(*new))
            came += new
            if not asks:
                continue
            near = index.near(hashes(*asked))
            possible = set(asked) if near is None else {asked[place] for place in near.tolist()}
            assert possible >= set(asked) & set(came)
            wanted = {key: [number for number, one in enumerate(came) if one == key] for key in asked}
            assert found(index, *asked) == {key: numbers for key, numbers in wanted.items() if numbers}

    holds()


def test_a_question_with_few_keys_puts_nothing_in_order() -> None:
    index = HashIndex()
    for first in range(0, 1 << 16, 1 << 14):
        index.add(np.arange(first, first + (1 << 14), dtype=np.int64))
    assert found(index, 5, 40_000, -1) == {5: [5], 40_000: [40_000]}
    assert not index._runs


def test_questions_put_rows_in_order_when_they_have_compared_as_much_as_that_costs() -> None:
    index = HashIndex()
    index.add(np.arange(0, 1 << 16, 2, dtype=np.int64))
    asked = 0
    while not index._runs:
        assert found(index, 6) == {6: [3]}
        asked += 1
    assert 32 <= asked <= 128
    index.add(hashes(6, 7))
    assert found(index, 6, 7) == {6: [3, 1 << 15], 7: [(1 << 15) + 1]}


def test_a_question_with_many_keys_puts_rows_in_order_at_once() -> None:
    index = HashIndex()
    index.add(np.arange(1000, dtype=np.int64))
    assert found(index, *range(2000)) == {key: [key] for key in range(1000)}
    assert len(index._runs) == 1


def test_hashes_that_are_not_among_few_are_known_at_once() -> None:
    index = HashIndex()
    index.add(np.arange(100, dtype=np.int64))
    near = index.near(np.arange(50, 100_000, dtype=np.int64))
    assert set(range(50)) <= set(near.tolist())
    assert len(near) < 100_000 / 8
    index.add(np.arange(100_000, dtype=np.int64))
    assert index.near(np.arange(100_000, dtype=np.int64)) is None
