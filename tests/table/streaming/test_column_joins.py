"""Inner joins of rows that only come: the pairs of the tables, whatever comes first, and after a restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.table.running import Rows, run
from tests.table.streaming.joined import CALLS, Change, Driven, folded

from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.types import DoubleType, IntType, VarCharType
from penstock.sql.logical.nodes import JoinType
from penstock.sql.stream.joins import regular as column_join_operator
from penstock.sql.stream.joins import sides as held_columns
from penstock.sql.stream.joins.regular import COLUMN_STATES, ColumnJoinOperator, JoinOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Constant, Field, Typed
from penstock.storage.metadata import decode_metadata

TEXT = VarCharType()
SIDE = [IntType(), TEXT]
DIFFERS = CALLS.call("<>", [Field(TEXT, 1), Field(TEXT, 3)])
NAMES = ["c0", "c1", "c2", "c3"]
ROWS = st.lists(st.tuples(st.sampled_from((0, 1)), st.sampled_from((1, 2, 3, None)), st.sampled_from("ab")))


def join(condition: Typed | None = None, nulls_match: bool = False, side: Sequence[Any] = SIDE) -> Driven:
    sides = (list(side), list(side))
    operator = partial(
        ColumnJoinOperator, ([0], [0]), [nulls_match], condition, sides, NAMES, StreamSession(), side[:1]
    )
    return Driven(operator, sides, [*side, *side])


def join_of_changelogs(condition: Typed | None = None, nulls_match: bool = False) -> Driven:
    sides = (SIDE, SIDE)
    inner = partial(JoinOperator, JoinType.INNER, ([0], [0]), [nulls_match])
    return Driven(partial(inner, condition, sides, NAMES, StreamSession()), sides, [*SIDE, *SIDE])


def test_a_row_is_sent_with_each_match_that_came_before_it() -> None:
    driven = join()
    assert driven.send(0, ("+I", 1, "a"), ("+I", 2, "b"), ("+I", 1, "c")) == []
    assert driven.send(1, ("+I", 1, "x"), ("+I", 3, "z")) == [("+I", 1, "a", 1, "x"), ("+I", 1, "c", 1, "x")]
    assert driven.send(0, ("+I", 3, "d"), ("+I", 1, "e")) == [("+I", 3, "d", 3, "z"), ("+I", 1, "e", 1, "x")]


def test_rows_that_are_the_same_are_pairs_each() -> None:
    driven = join()
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "a"))
    assert driven.send(1, ("+I", 1, "x"), ("+I", 1, "x")) == [("+I", 1, "a", 1, "x")] * 4


@pytest.mark.parametrize("nulls_match", [False, True])
def test_null_is_like_null_only_where_the_query_says_so(nulls_match: bool) -> None:
    driven = join(nulls_match=nulls_match)
    driven.send(0, ("+I", None, "a"))
    assert driven.send(1, ("+I", None, "x")) == [("+I", None, "a", None, "x")] * nulls_match


def test_numbers_that_are_no_numbers_are_one_key_and_so_are_both_zeros() -> None:
    driven = join(side=[DoubleType(), TEXT])
    driven.send(0, ("+I", float("nan"), "a"), ("+I", -0.0, "b"))
    assert [row[2] for row in driven.send(1, ("+I", 0.0, "x"), ("+I", float("nan"), "y"))] == ["b", "a"]


@given(ROWS, st.booleans(), st.booleans(), st.data())
def test_what_is_sent_is_what_a_join_of_changelogs_sends(
    rows: list[Any], differs: bool, nulls_match: bool, data: Any
) -> None:
    """Also after restores, and where rows have moved from part to part."""
    condition = DIFFERS if differs else None
    found = join(condition, nulls_match)
    other = join_of_changelogs(condition, nulls_match)
    sent: list[Change] = []
    wanted: list[Change] = []
    checkpoint = 0
    while rows:
        size = data.draw(st.integers(1, 4))
        for side in (0, 1):
            batch = [("+I", *row[1:]) for row in rows[:size] if row[0] == side]
            if batch:
                sent += found.send(side, *batch)
                wanted += other.send(side, *batch)
        rows = rows[size:]
        what = data.draw(st.sampled_from(["nothing", "completes", "fails", "restored"]))
        if what != "nothing":
            checkpoint += 1
        if what == "restored":
            found = found.restored(checkpoint)
        elif what != "nothing":
            found.harness.snapshot(checkpoint)
            if what == "completes":
                found.harness.notify_complete(checkpoint)
    assert folded(sent) == folded(wanted)


def test_a_checkpoint_adds_what_has_come_since_the_last_complete_one() -> None:
    """G7: the state of a join only grows, so what is stored of it stays."""
    driven = join()

    def files(checkpoint_id: int) -> list[int]:
        metadata = decode_metadata(driven.harness.snapshot(checkpoint_id), "a test")
        (state,) = metadata.operators[0].subtasks.values()
        tables = [
            pa.ipc.open_stream(pa.BufferReader(file.data)).read_all() for file in state.keyed[COLUMN_STATES[0]][0].files
        ]
        return [table.num_rows for table in tables]

    driven.send(0, *[("+I", number, "a") for number in range(300)])
    assert files(1) == [300]
    driven.send(0, ("+I", 1, "b"))
    assert files(2) == [301]
    driven.harness.notify_complete(2)
    driven.send(0, ("+I", 1, "c"), ("+I", 1, "d"))
    assert files(3) == [301, 2]
    assert files(4) == [301, 2]
    driven.harness.notify_complete(4)
    found = driven.restored(5)
    assert sorted(row[2] for row in found.send(1, ("+I", 1, "x"))) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("side", [[TEXT, TEXT], [IntType(), TEXT]])
def test_keys_with_the_same_hash_are_told_apart(side: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_join_operator, "key_hashes", lambda columns: np.zeros(len(columns[0]), np.int64))
    monkeypatch.setattr(held_columns, "is_own_number", lambda types: False)
    one, two = ("1", "2") if side[0] is TEXT else (1, 2)
    driven = join(side=side)
    driven.send(0, ("+I", one, "a"), ("+I", two, "b"))
    sent = driven.send(1, ("+I", two, "x"), ("+I", one, "y"))
    assert [(row[2], row[4]) for row in sent] == [("b", "x"), ("a", "y")]


def test_many_pairs_are_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_join_operator, "_PAIRS_MAX", 3)
    driven = join()
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "b"), ("+I", 2, "c"))
    sent = driven.send(1, ("+I", 1, "x"), ("+I", 2, "y"), ("+I", 1, "z"), ("+I", 9, "-"))
    assert [row[2:3] + row[4:] for row in sent] == [("a", "x"), ("b", "x"), ("c", "y"), ("a", "z"), ("b", "z")]


def test_a_value_that_a_condition_cannot_take_fails_with_the_operators_name() -> None:
    number = CALLS.cast(Field(TEXT, 1), IntType())
    driven = join(CALLS.call("=", [number, Constant(IntType(False), 1)]))
    driven.send(0, ("+I", 1, "no number"))
    with pytest.raises(UserCodeError, match="a batch of 1 rows"):
        driven.send(1, ("+I", 1, "x"))


@pytest.mark.parametrize("begins", [join, join_of_changelogs])
def test_either_join_goes_on_from_what_the_other_one_has_left(begins: Callable[[], Driven]) -> None:
    """H4: a savepoint fits any backend, and the operators that each of them has."""
    driven: Driven = begins()
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "a"), ("+I", 2, "b"), ("+I", None, "-"))
    driven.send(1, ("+I", 2, "y"))
    for checkpoint_id in range(1, 5):
        # By turns, so that nothing of an earlier form may be left over.
        other = join_of_changelogs() if checkpoint_id % 2 == (begins is join) else join()
        taken = Driven(*other._arguments, driven.harness.snapshot(checkpoint_id))
        taken.harness.snapshot(9)
        taken.harness.notify_complete(9)
        driven = taken
    sent = driven.send(1, ("+I", 1, "x"))
    assert sent == [("+I", 1, "a", 1, "x")] * 2
    assert driven.send(0, ("+I", 2, "c")) == [("+I", 2, "c", 2, "y")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_query_gives_the_same_at_any_parallelism(parallelism: int) -> None:
    left = Rows({"a": IntType(), "b": IntType()}, [(number % 7, number) for number in range(300)])
    right = Rows({"c": IntType(), "d": IntType()}, [(number % 5, number) for number in range(100)])
    found = run("SELECT b, d FROM l JOIN r ON a = c AND b > d", parallelism=parallelism, l=left, r=right)
    wanted = [(b, d) for b in range(300) for d in range(100) if b % 7 == d % 5 and b > d]
    assert sorted(found.rows()) == sorted(wanted)
