"""State that is forgotten a while after it was written: never before, and not seen any more from that moment on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.table.streaming.ranked import NAMES, NUMBERED, TS, TYPES, K, Under, V

from penstock.runtime.operators.base import StreamOperator
from penstock.sql.data.types import BigIntType, IntType
from penstock.sql.logical.nodes import AggregateCall, SortKey
from penstock.sql.stream.changelog import ROWS as NORMALIZED
from penstock.sql.stream.changelog import ChangelogNormalizeOperator
from penstock.sql.stream.groups.operators import GROUPS, GroupAggregateOperator
from penstock.sql.stream.over.operators import (
    FRAMES,
    SORTED,
    OverAtOnceOperator,
    OverInEventTimeOperator,
    OverInOrderOperator,
)
from penstock.sql.stream.ranking.deduplicate import COUNTS, ROWS, FirstRowOperator, FirstRowsOperator, LastRowOperator
from penstock.sql.stream.ranking.top_n import PARTITIONS, RankOperator, RetractableTopN, TopN
from penstock.sql.stream.rows.state_ttl import EXPIRIES, WRITTEN, compute_due_time, lasting
from penstock.sql.stream.sinks import ROWS as UPSERTED
from penstock.sql.stream.sinks import LastUpsertOperator
from penstock.sql.typed import Field

TTL_MS = 80
#: when state that nobody looks at has gone for sure
GONE_MS = TTL_MS * 9 // 8
TOTAL = AggregateCall("SUM", (Field(IntType(), V),), IntType())
COUNT = AggregateCall("COUNT", (), BigIntType(False))


pytestmark = pytest.mark.usefixtures("each_backend")


def totals(retracts: bool = False, before: bool = True) -> Callable[[], StreamOperator]:
    """SELECT k, SUM(v). Its third column is there because rows have three here."""
    calls = (TOTAL, AggregateCall("MAX", (Field(TYPES[TS], TS),), TYPES[TS]))
    return lasting(partial(GroupAggregateOperator, (K,), calls, TYPES, NAMES, retracts, before), TTL_MS)


def under(factory: Callable[[], StreamOperator]) -> Under:
    return Under(lasting(factory, TTL_MS))


LAST = partial(LastRowOperator, (K,), None, TYPES, NAMES, True)
FIRST = partial(FirstRowsOperator, (K,), 1, 1, NAMES)
TOP = partial(RankOperator, (K,), (SortKey(V),), 2, False, TopN(1, True, True), TYPES, NUMBERED)
NORMALIZE = partial(ChangelogNormalizeOperator, (K,), TYPES, NAMES, True)
LAST_UPSERT = partial(LastUpsertOperator, (K,), None, TYPES, NAMES)
OVER = partial(OverAtOnceOperator, (K,), TS, (COUNT,), TYPES, NUMBERED, None)
IN_ORDER = partial(OverInOrderOperator, (K,), V, True, (COUNT,), TYPES, NUMBERED, True)
#: each operator, its state, and what two rows of one key give at once, or when the first one has been forgotten
OPERATORS: list[tuple[Callable[[], StreamOperator], str, list[Any], list[Any]]] = [
    (totals(), GROUPS, [("-U", "a", 1), ("+U", "a", 3)], [("+I", "a", 2)]),
    (LAST, ROWS, [("-U", "a", 1), ("+U", "a", 2)], [("+I", "a", 2)]),
    (FIRST, COUNTS, [], [("+I", "a", 2)]),
    (TOP, PARTITIONS, [("+I", "a", 2, 2)], [("+I", "a", 2, 1)]),
    (NORMALIZE, NORMALIZED, [("-U", "a", 1), ("+U", "a", 2)], [("+I", "a", 2)]),
    (LAST_UPSERT, UPSERTED, [("+U", "a", 2)], [("+I", "a", 2)]),
    (OVER, FRAMES, [("+I", "a", 2, 2)], [("+I", "a", 2, 1)]),
    (IN_ORDER, SORTED, [("+I", "a", 2, 2)], [("+I", "a", 2, 1)]),
]
NAMED = pytest.mark.parametrize(("operator", "state", "known", "forgotten"), OPERATORS)


@NAMED
def test_state_lives_to_the_last_millisecond(operator: Any, state: str, known: list[Any], forgotten: list[Any]) -> None:
    found = under(operator)
    found.rows(("a", 1))
    found.take()
    found.later(TTL_MS - 1)
    found.rows(("a", 2))
    assert found.take() == known


@NAMED
def test_what_has_expired_is_not_seen(operator: Any, state: str, known: list[Any], forgotten: list[Any]) -> None:
    """Even when no timer has thrown it out yet."""
    found = under(operator)
    found.rows(("a", 1))
    found.take()
    found.unnoticed(TTL_MS)
    found.rows(("a", 2))
    assert found.take() == forgotten


@NAMED
def test_what_nobody_looks_at_is_thrown_out(operator: Any, state: str, known: list[Any], forgotten: list[Any]) -> None:
    found = under(operator)
    found.rows(("a", 1), ("b", 1))
    found.later(TTL_MS // 2)
    found.rows(("b", 0))
    found.later(GONE_MS - TTL_MS // 2)
    # The first row of a key is not written again when others follow.
    kept = 0 if state == COUNTS else 1
    assert found.held(state) == found.held(WRITTEN) == kept
    found.later(2 * GONE_MS)
    assert found.held(state) == found.held(WRITTEN) == 0
    assert found.harnesses[0].operator.next_timer_ms() is None


@NAMED
def test_times_come_back_from_a_snapshot(operator: Any, state: str, known: list[Any], forgotten: list[Any]) -> None:
    """At another parallelism, too."""
    for wait_ms, expected in ((TTL_MS // 2 - 1, known), (TTL_MS // 2, forgotten)):
        found = under(operator)
        found.rows(("a", 1))
        found.take()
        found.unnoticed(TTL_MS // 2)
        found.recover(parallelism=3)
        found.unnoticed(wait_ms)
        found.rows(("a", 2))
        assert found.take() == expected


@NAMED
def test_what_has_expired_does_not_come_back_from_a_snapshot(
    operator: Any, state: str, known: list[Any], forgotten: list[Any]
) -> None:
    """An earlier snapshot has it, so the next one has to say that it is gone."""
    found = under(operator)
    found.rows(("a", 1))
    found.recover()
    found.take()
    found.later(GONE_MS)
    found.recover()
    assert found.held(state) == found.held(WRITTEN) == 0
    found.rows(("a", 2))
    assert found.take() == forgotten


def test_nothing_is_noted_where_state_lives_for_ever() -> None:
    found = Under(LAST)
    found.rows(("a", 1))
    assert found.held(WRITTEN) == 0
    assert found.harnesses[0].operator.next_timer_ms() is None


def test_state_from_a_job_that_kept_it_for_ever_lives_on_from_the_restore() -> None:
    found = Under(LAST)
    found.rows(("a", 1))
    found.unnoticed(10 * TTL_MS)
    found._operator = lasting(LAST, TTL_MS)
    found.recover()
    found.take()
    found.unnoticed(TTL_MS - 1)
    found.rows(("a", 2))
    assert found.take() == [("-U", "a", 1), ("+U", "a", 2)]


def test_a_key_that_is_written_often_has_one_timer() -> None:
    found = under(LAST)
    for _ in range(50):
        found.rows(("a", 1))
        found.later(1)
    table = found.harnesses[0].context.keyed.table(EXPIRIES)
    assert len(table.lone or {}) + sum(map(len, table.panes.values())) == 1


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl_ms", "due"), [(800, 1_900), (7, 1_008), (1, 1_002)])
def test_keys_that_are_written_in_an_eighth_of_a_lifetime_go_together(ttl_ms: int, due: int) -> None:
    """That is a millisecond at least."""
    assert compute_due_time(1_001, ttl_ms) == due


@pytest.mark.parametrize("rows", [1, 100])
def test_a_group_that_stays_the_same_is_sent_again(rows: int) -> None:
    """So that it lives on in the state of the steps behind."""
    found = Under(totals())
    found.rows(("a", 1))
    found.take()
    found.rows(*[("a", 0)] * rows)
    assert found.take() == [("-U", "a", 1), ("+U", "a", 1)] * rows


@pytest.mark.parametrize("rows", [1, 100])
def test_distinct_rows_are_sent_once(rows: int) -> None:
    """They only come: nobody behind takes updates."""
    operator = partial(GroupAggregateOperator, (K, V, TS), (), TYPES, NAMES, False, True)
    found = under(operator)
    found.rows(("a", 1))
    found.take()
    found.rows(*[("a", 1)] * rows)
    assert found.take() == []


def test_a_row_that_goes_from_an_expired_group_is_dropped() -> None:
    found = Under(totals(retracts=True))
    found.rows(("a", 1))
    found.take()
    found.later(TTL_MS)
    found.rows(("-D", "a", 1), ("a", 5), ("-D", "b", 1))
    assert found.take() == [("+I", "a", 5)]
    found.rows(("-D", "b", 1))
    assert found.take() == []


# --- rows in order ----------------------------------------------------------------------------------------------------


def test_a_row_that_goes_from_an_expired_partition_is_not_owed() -> None:
    operator = partial(RankOperator, (K,), (SortKey(V),), 2, False, RetractableTopN(1, False, True), TYPES, NAMES)
    found = under(operator)
    found.rows(("a", 1))
    found.later(TTL_MS)
    found.take()
    found.rows(("-D", "a", 1))
    found.rows(("a", 1))
    assert found.take() == [("+I", "a", 1)]


def test_a_first_row_that_waits_for_the_watermark_is_not_forgotten() -> None:
    found = under(partial(FirstRowOperator, (K,), TS, TYPES, NAMES))
    found.rows(("a", 1, 5))
    found.later(3 * GONE_MS)
    found.watermark(5)
    assert found.take() == [("+I", "a", 1, 5)]
    found.later(3 * GONE_MS)
    found.rows(("a", 2, 6))
    found.watermark(6)
    assert found.take() == [("+I", "a", 2, 6)]


def test_rows_that_wait_in_an_over_window_are_not_forgotten() -> None:
    operator = partial(OverInEventTimeOperator, (K,), TS, (COUNT,), TYPES, NUMBERED, False, None)
    found = under(operator)
    found.rows(("a", 1, 5))
    found.watermark(5)
    found.rows(("a", 1, 7))
    found.later(3 * GONE_MS)
    found.watermark(7)
    assert found.take() == [("+I", "a", 1, 5, 1), ("+I", "a", 1, 7, 2)]
    found.later(3 * GONE_MS)
    found.rows(("a", 1, 9))
    found.watermark(9)
    assert found.take() == [("+I", "a", 1, 9, 1)]


def test_rows_of_a_normaliser_come_back() -> None:
    found = under(NORMALIZE)
    found.rows(("a", 1), ("b", 1))
    found.recover()
    found.rows(("a", 2), ("-D", "b", None))
    assert found.take() == [("+I", "a", 1), ("+I", "b", 1), ("-U", "a", 1), ("+U", "a", 2), ("-D", "b", 1)]
