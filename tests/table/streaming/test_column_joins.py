"""Inner joins of rows that only come: the pairs of the tables, whatever comes first, and after a restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from tests.table.running import Rows, run
from tests.table.streaming.joined import CALLS, Change, Driven, create_batch

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType, DoubleType, IntType, TimestampType, VarCharType
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


class Case(NamedTuple):
    """The columns of a batch, of which the first `width` are the rows' own, and how they are joined."""

    types: list[DataType]
    width: int
    keys: list[int]
    nulls_match: list[bool]


TIME = TimestampType(3)
CASES = [
    Case([IntType(), TEXT], 2, [0], [False]),
    Case([IntType(), TEXT], 2, [0], [True]),
    Case([TEXT, IntType(), DoubleType()], 3, [2, 0], [True, False]),
    Case([IntType(), TEXT, TIME, DoubleType()], 2, [3, 2], [False, False]),
    Case([IntType(), TEXT, TIME], 2, [2, 0], [False, True]),
]
VALUES: dict[type[DataType], list[Any]] = {
    IntType: [1, 2, 3, None],
    VarCharType: ["a", "b", None],
    DoubleType: [float("nan"), 0.0, -0.0, 1.5, None],
    TimestampType: [0, 1_700_000_000_001_000_000, None],
}


def both_joins(case: Case, condition: Typed | None) -> tuple[Driven, Driven]:
    """The join in columns, and that of changelogs."""
    own, indices = case.types[: case.width], (case.keys, case.keys)
    names = [f"c{place}" for place in range(2 * case.width)]
    common = (indices, case.nulls_match, condition, (own, own), names, StreamSession())
    columns = partial(ColumnJoinOperator, *common, [case.types[index] for index in case.keys])
    inputs, output = (case.types, case.types), [*own, *own]
    return (
        Driven(columns, inputs, output),
        Driven(partial(JoinOperator, JoinType.INNER, *common), inputs, output),
    )


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Draws how many rows and pairs are few, and how many are kept as tuples."""

    def draw(data: Any) -> None:
        monkeypatch.setattr(column_join_operator, "FEW_ROWS", data.draw(st.sampled_from([0, 2, 3, 128]), "few rows"))
        monkeypatch.setattr(held_columns, "FEW_PAIRS", data.draw(st.sampled_from([0, 2, 5, 256]), "few pairs"))
        monkeypatch.setattr(held_columns, "_NEW_MAX", data.draw(st.sampled_from([0, 2, 2048]), "new rows"))
        monkeypatch.setattr(held_columns, "_KNOWN_MAX", data.draw(st.sampled_from([0, 4, 2048]), "known rows"))

    return draw


def send(driven: Driven, side: int, rows: list[Change], as_tuples: bool) -> list[str]:
    """Send rows as tuples or as columns; what comes out, in some order."""
    types = driven._arguments[1][side]
    batch = create_batch(types, rows)
    if as_tuples:
        layout = RowLayout(batch.data.names, types)
        batch = ColumnBatch(RowData(layout, [row[1:] for row in rows]))
    driven.harness.operator.process_batch(batch, side)
    return sorted(map(repr, driven.taken()))


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CASES), st.booleans(), st.data())
def test_what_is_sent_is_what_a_join_of_changelogs_sends(
    limits: Callable[[Any], None], case: Case, differs: bool, data: Any
) -> None:
    """For each batch, of few rows or many; also after restores, and where rows have moved from part to part."""
    limits(data)
    number = case.types.index(IntType())
    condition = CALLS.call("<=", [Field(IntType(), number), Field(IntType(), case.width + number)]) if differs else None
    found, other = both_joins(case, condition)
    row = st.tuples(st.just("+I"), *[st.sampled_from(VALUES[type(kind)]) for kind in case.types])
    sizes = st.sampled_from([1, 1, 1, 2, 3, 4, 12])
    for checkpoint in range(1, data.draw(st.integers(1, 20), "batches") + 1):
        side, size = data.draw(st.integers(0, 1)), data.draw(sizes)
        batch = data.draw(st.lists(row, min_size=size, max_size=size), "batch")
        assert send(found, side, batch, data.draw(st.booleans())) == send(other, side, batch, False)
        what = data.draw(st.sampled_from([*["nothing"] * 6, "completes", "fails", "restored"]))
        if what == "restored":
            found = found.restored(checkpoint)
        elif what != "nothing":
            found.harness.snapshot(checkpoint)
            if what == "completes":
                found.harness.notify_complete(checkpoint)


@pytest.mark.parametrize("few_rows", [0, 128])
def test_a_condition_fails_with_the_same_error_for_few_rows_and_many(
    few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_join_operator, "FEW_ROWS", few_rows)
    quotient = CALLS.call("/", [Constant(IntType(False), 1), Field(IntType(), 0)])
    driven = join(CALLS.call("=", [quotient, Constant(IntType(False), 1)]))
    driven.send(0, ("+I", 0, "a"))
    with pytest.raises(UserCodeError, match="a batch of 2 rows") as failed:
        driven.send(1, ("+I", 1, "x"), ("+I", 0, "y"))
    assert "Division by zero" in str(failed.value.__cause__) or "divide by zero" in str(failed.value.__cause__)


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
