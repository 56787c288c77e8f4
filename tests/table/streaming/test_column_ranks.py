"""Top-N and deduplication over columns send what those over rows send, and each goes on from the other one's state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.streaming.ranked import NAMES, NUMBERED, TS, TYPES, K, Under, V

from penstock.runtime.operators.base import StreamOperator
from penstock.sql.logical.nodes import SortKey
from penstock.sql.stream.ranking import columnar as column_rank_operator
from penstock.sql.stream.ranking.columnar import ColumnLastRowOperator, ColumnRankOperator
from penstock.sql.stream.ranking.deduplicate import LastRowOperator
from penstock.sql.stream.ranking.top_n import RankOperator, Top1, TopN
from penstock.sql.stream.rows import columns as numbered_rows
from penstock.sql.stream.rows.state_ttl import lasting
from penstock.state import snapshot as frozen

Factory = Callable[[], StreamOperator]
ROWS = st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 3))
BATCHES = st.lists(st.lists(ROWS, min_size=1, max_size=8), max_size=8)
LIFETIME_MS = 1_000


def check(columns: Factory, rows: Factory, batches: list[list[tuple[Any, ...]]], data: st.DataObject) -> None:
    """Both send the same for each batch, whatever state they go on from."""
    ttl_ms = data.draw(st.sampled_from([0, LIFETIME_MS]))
    columns, rows = lasting(columns, ttl_ms), lasting(rows, ttl_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbered_rows, "ROWS_GONE_MAX", 2)
        patch.setattr(column_rank_operator, "ROWS_GONE_MAX", 2)
        found, wanted = Under(columns), Under(rows)
        for batch in batches:
            found.rows(*batch)
            wanted.rows(*batch)
            assert found.take() == wanted.take()
            for one in (found, wanted):
                one.later(LIFETIME_MS // 3)
            if data.draw(st.booleans()):
                found._operator = data.draw(st.sampled_from([columns, rows]))
                found.recover()


@settings(deadline=None, max_examples=150)
@given(BATCHES, st.sampled_from([None, TS]), st.booleans(), st.data())
def test_the_last_row(
    batches: list[list[tuple[Any, ...]]], time: int | None, sends_before: bool, data: st.DataObject
) -> None:
    arguments = ((K,), time, TYPES, NAMES, sends_before)
    check(partial(ColumnLastRowOperator, *arguments), partial(LastRowOperator, *arguments), batches, data)


ORDERS = [(SortKey(V),), (SortKey(V, True, False),), (SortKey(TS, True, False), SortKey(V)), (SortKey(K), SortKey(V))]


@settings(deadline=None, max_examples=150)
@given(BATCHES, st.sampled_from(ORDERS), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.data())
def test_the_first_rows(
    batches: list[list[tuple[Any, ...]]], order: Any, start: int, more: int, shows: bool, data: st.DataObject
) -> None:
    end, names = start + more, NUMBERED if shows else NAMES
    top = Top1(shows, True) if end == 1 else TopN(start, shows, data.draw(st.booleans()))
    columns = partial(ColumnRankOperator, (K,), order, end, top, TYPES, names)
    rows = partial(RankOperator, (K,), order, end, False, top, TYPES, names)
    check(columns, rows, batches, data)


def test_rows_that_are_behind_are_not_kept() -> None:
    ranked = Under(partial(ColumnRankOperator, (K,), (SortKey(V),), 1, TopN(1, False, True), TYPES, NAMES))
    ranked.rows(("a", 0))
    ranked.rows(*[("a", value) for value in range(1, 100)])
    operator = ranked.harnesses[0].operator
    assert isinstance(operator, ColumnRankOperator)
    assert len(operator._rows) == 1


def test_a_checkpoint_has_the_partitions_that_changed() -> None:
    """G7: and it has rows as they were, whatever comes while it is written."""
    ranked = Under(partial(ColumnLastRowOperator, (K,), TS, TYPES, NAMES, True))
    ranked.rows(*[(f"k{number}", number, number) for number in range(3_000)])
    (harness,) = ranked.harnesses
    keyed = harness.context.keyed
    assert len(_rows_in(keyed.capture(1))) == 3_000
    keyed.confirm(1)
    ranked.rows(("k1", 7, 5_000), ("new", 8, 1))
    captured = keyed.capture(2)
    ranked.rows(("k1", 9, 6_000))
    assert sorted(_rows_in(captured)) == [("k1", 7, 5_000 * 1_000_000), ("new", 8, 1_000_000)]


def _rows_in(captures: Any) -> list[Any]:
    (capture,) = captures
    (_, written), _ = frozen.thaw(capture.frozen)
    return [value for _, _, values, _ in written for value in values]
