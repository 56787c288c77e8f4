"""Rows of joins that are forgotten a while after they were written, on either side after its own time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.table.streaming.joined import Driven

from penstock.sql.data.types import IntType, VarCharType
from penstock.sql.logical.nodes import JoinType
from penstock.sql.stream.joins.regular import EXPIRIES, SIDES, JoinOperator, SemiJoinOperator
from penstock.sql.stream.rows.state_ttl import StreamSession, lasting
from penstock.testing.operator_harness import VirtualClock

TYPES = [IntType(), VarCharType()]
LEFT, RIGHT = 0, 1
LEFT_MS, RIGHT_MS = 80, 160


pytestmark = pytest.mark.usefixtures("each_backend")


class Joined:
    """A join whose left rows live for 80 ms, and whose right ones for 160 ms. `ids`: see `JoiningOperator`."""

    def __init__(self, join_type: JoinType, ttl_ms: tuple[int, int] = (LEFT_MS, RIGHT_MS), ids: Any = None) -> None:
        is_half = join_type in (JoinType.SEMI, JoinType.ANTI)
        kind = SemiJoinOperator if is_half else JoinOperator
        types = TYPES if is_half else TYPES * 2
        names = [f"c{place}" for place in range(len(types))]
        operator = partial(
            kind, join_type, ([0], [0]), [False], None, (TYPES, TYPES), names, StreamSession(), ids or (None, None)
        )
        self._clock = VirtualClock()
        self._driven = Driven(lasting(operator, ttl_ms), (TYPES, TYPES), types, clock=self._clock)
        self._arguments = operator, types

    def send(self, side: int, *rows: Any) -> list[Any]:
        return self._driven.send(side, *rows)

    def later(self, by_ms: int, fires: bool = True) -> None:
        if fires:
            self._driven.harness.advance_processing_time(by_ms)
        else:
            self._clock.advance(by_ms)

    def recover(self, ttl_ms: tuple[int, int] = (LEFT_MS, RIGHT_MS)) -> None:
        """Stop with a snapshot, and go on from it with perhaps other lifetimes."""
        operator, types = self._arguments
        taken = self._driven.harness.snapshot(1)
        self._driven = Driven(lasting(operator, ttl_ms), (TYPES, TYPES), types, taken, clock=self._clock)

    def held(self, side: int) -> int:
        return len(self._driven.harness.context.keyed.table(SIDES[side]).entries(None))

    def timers(self) -> int:
        tables = [self._driven.harness.context.keyed.table(name) for name in EXPIRIES]
        return sum(len(table.lone or {}) + sum(map(len, table.panes.values())) for table in tables)


@pytest.mark.parametrize("ids", [None, ([0], [0])])
@pytest.mark.parametrize("fires", [True, False])
def test_each_side_forgets_after_its_own_time(fires: bool, ids: Any) -> None:
    found = Joined(JoinType.INNER, ids=ids)
    found.send(LEFT, ("+I", 1, "l"))
    found.send(RIGHT, ("+I", 2, "r"))
    found.later(LEFT_MS - 1, fires)
    assert found.send(RIGHT, ("+I", 1, "x")) == [("+I", 1, "l", 1, "x")]
    found.later(1, fires)
    assert found.send(RIGHT, ("+I", 1, "y")) == []
    found.later(RIGHT_MS - LEFT_MS - 1, fires)
    assert found.send(LEFT, ("+I", 2, "z")) == [("+I", 2, "z", 2, "r")]
    found.later(1, fires)
    assert found.send(LEFT, ("+I", 2, "w")) == []


def test_rows_of_one_key_expire_one_by_one() -> None:
    found = Joined(JoinType.INNER)
    found.send(LEFT, ("+I", 1, "early"))
    found.later(40)
    found.send(LEFT, ("+I", 1, "late"))
    found.later(40)
    assert found.send(RIGHT, ("+I", 1, "r")) == [("+I", 1, "late", 1, "r")]


def test_a_row_that_comes_again_lives_on() -> None:
    found = Joined(JoinType.INNER)
    found.send(LEFT, ("+I", 1, "twice"), ("+I", 1, "once"))
    found.later(40)
    found.send(LEFT, ("+I", 1, "twice"))
    found.later(40)
    assert found.send(RIGHT, ("+I", 1, "r")) == [("+I", 1, "twice", 1, "r")] * 2


def test_a_match_that_comes_lets_a_row_of_an_outer_side_live_on() -> None:
    """What is held of its matches is written."""
    found = Joined(JoinType.LEFT)
    found.send(LEFT, ("+I", 1, "l"))
    found.later(40)
    assert found.send(RIGHT, ("+I", 1, "r")) == [("-D", 1, "l", None, None), ("+I", 1, "l", 1, "r")]
    found.later(79)
    assert found.send(RIGHT, ("-D", 1, "r")) == [("-D", 1, "l", 1, "r"), ("+I", 1, "l", None, None)]
    found.later(80)
    assert found.send(RIGHT, ("+I", 1, "s")) == []


def test_a_row_that_goes_and_has_expired_is_not_owed() -> None:
    found = Joined(JoinType.INNER)
    found.send(LEFT, ("+I", 1, "l"))
    found.later(LEFT_MS)
    assert found.send(LEFT, ("-D", 1, "l")) == []
    found.send(LEFT, ("+I", 1, "l"))
    assert found.send(RIGHT, ("+I", 1, "r")) == [("+I", 1, "l", 1, "r")]


@pytest.mark.parametrize(("join_type", "sent"), [(JoinType.SEMI, [("+I", 1, "l")]), (JoinType.ANTI, [])])
def test_a_semi_join_forgets_matches(join_type: JoinType, sent: list[Any]) -> None:
    found = Joined(join_type)
    found.send(RIGHT, ("+I", 1, "r"))
    found.later(RIGHT_MS - 1)
    assert found.send(LEFT, ("+I", 1, "l")) == sent
    found.later(1)
    assert found.send(LEFT, ("+I", 1, "l")) == ([] if sent else [("+I", 1, "l")])


def test_what_nobody_looks_at_is_thrown_out() -> None:
    found = Joined(JoinType.INNER)
    found.send(LEFT, ("+I", 1, "a"), ("+I", 2, "b"))
    found.send(RIGHT, ("+I", 1, "a"))
    found.later(LEFT_MS * 9 // 8)
    assert (found.held(LEFT), found.held(RIGHT)) == (0, 1)
    found.later(RIGHT_MS)
    assert (found.held(RIGHT), found.timers()) == (0, 0)


def test_a_side_without_a_time_is_kept_for_ever() -> None:
    found = Joined(JoinType.INNER, (0, RIGHT_MS))
    found.send(LEFT, ("+I", 1, "l"))
    found.later(100 * RIGHT_MS)
    assert found.send(RIGHT, ("+I", 1, "r")) == [("+I", 1, "l", 1, "r")]


@pytest.mark.parametrize("ids", [None, ([0], [0])])
def test_what_has_expired_does_not_come_back_from_a_snapshot(ids: Any) -> None:
    """An earlier snapshot has it, so the next one has to say that it is gone."""
    found = Joined(JoinType.LEFT, ids=ids)
    found.send(LEFT, ("+I", 1, "l"))
    found.recover()
    found.later(LEFT_MS * 9 // 8)
    found.recover()
    assert found.held(LEFT) == found.timers() == 0
    assert found.send(RIGHT, ("+I", 1, "r")) == []


@pytest.mark.parametrize("wait_ms", [39, 40])
def test_times_come_back_from_a_snapshot(wait_ms: int) -> None:
    found = Joined(JoinType.INNER)
    found.send(LEFT, ("+I", 1, "l"))
    found.later(40)
    found.recover()
    found.later(wait_ms)
    assert found.send(RIGHT, ("+I", 1, "r")) == ([("+I", 1, "l", 1, "r")] if wait_ms < 40 else [])


@pytest.mark.parametrize("ids", [None, ([0], [0])])
def test_a_lifetime_may_begin_and_end_with_a_restore(ids: Any) -> None:
    found = Joined(JoinType.INNER, (0, 0), ids)
    found.send(LEFT, ("+I", 1, "l"), ("+I", 2, "m"))
    found.later(1000)
    found.recover()
    found.later(LEFT_MS - 1)
    assert found.send(RIGHT, ("+I", 1, "r")) == [("+I", 1, "l", 1, "r")]
    found.recover((0, 0))
    found.later(1000)
    assert found.send(RIGHT, ("+I", 2, "r")) == [("+I", 2, "m", 2, "r")]
    assert found.send(LEFT, ("-D", 2, "m")) == [("-D", 2, "m", 2, "r")]
