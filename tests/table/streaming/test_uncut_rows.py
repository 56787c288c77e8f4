"""Chosen rows whose columns are cut when somebody reads them: they are what they would be if they were cut at once."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.table.streaming.joined import CALLS, Driven, create_batch

from penstock.codecs.column_data import ChosenColumns, ColumnData
from penstock.connectors.collect import DiscardingSink
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.types import IntType, VarCharType
from penstock.sql.stream.calc import CalcOperator
from penstock.sql.stream.joins.regular import ColumnJoinOperator
from penstock.sql.stream.rows.rows import UncutRows, cut, taken
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Constant, Field, Typed
from penstock.testing import OneInputOperatorHarness


@pytest.fixture(autouse=True)
def with_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows would be computed in Python, and leave nothing to cut."""
    monkeypatch.setattr("penstock.sql.expressions.row_program.ROWS_MAX", 0)
    monkeypatch.setattr("penstock.sql.stream.joins.regular.FEW_ROWS", 0)


TEXT = VarCharType()
SIDE = [IntType(), TEXT]
NUMBER, WORD = Field(IntType(), 0), Field(TEXT, 1)
NAMES = ["n", "t"]


def make_chosen(
    rows: int, numbers: Sequence[int], known: Sequence[int] = (), is_masked: bool = False
) -> tuple[ChosenColumns, ColumnData]:
    """Rows of a number and a text, and the same, cut. `known`: the places of columns that are cut already."""
    whole = [pa.array(range(rows), pa.int32()), pa.array([f"row {row}" for row in range(rows)], pa.string())]
    chosen = np.array(numbers, np.int64)
    arrays = [column.take(pa.array(chosen)) for column in whole]
    of_known = {place: arrays[place] for place in known}
    longer = [None if place in known else whole[place] for place in (0, 1)]
    mask = pa.array(np.isin(np.arange(rows), chosen)) if is_masked else None
    found = ChosenColumns(longer, NAMES, chosen, of_known, mask)
    return found, ColumnData(pa.RecordBatch.from_arrays(arrays, NAMES))


CHOSEN = st.integers(1, 20).flatmap(
    lambda rows: st.tuples(
        st.just(rows),
        st.lists(st.integers(0, rows - 1), min_size=1, unique=True).map(sorted),
        st.sets(st.integers(0, 1)),
        st.booleans(),
    )
)


@given(CHOSEN, st.lists(st.sampled_from(["column", "taken", "cut", "slice", "pickle", "columns", "rows"])))
def test_whatever_is_read_first_is_what_is_there(chosen: Any, reads: list[str]) -> None:
    rows, numbers, known, is_masked = chosen
    found, wanted = make_chosen(rows, numbers, list(known), is_masked)
    places = np.array([0, len(numbers) - 1])
    for read in reads:
        assert len(found) == len(numbers)
        match read:
            case "column":
                assert found.column(1).equals(wanted.column(1))
            case "taken":
                assert found.taken(0, places).equals(wanted.taken(0, places))
            case "cut":
                assert found.cut().equals(wanted.columns)
            case "slice":
                assert found[1:] == wanted[1:]
            case "pickle":
                assert pickle.loads(pickle.dumps(found, protocol=5)) == wanted
            case "columns":
                assert found.columns.equals(wanted.columns)
                assert found.is_cut
            case "rows":
                assert found.rows() == wanted.rows()
    assert found == wanted


def test_reading_one_column_leaves_the_others() -> None:
    found, wanted = make_chosen(10, range(8))
    assert found.column(0).equals(wanted.column(0))
    assert found.taken(1, np.array([3])).to_pylist() == ["row 3"]
    assert not found.is_cut
    assert set(found._known) == {0}


@given(CHOSEN, st.booleans())
def test_rows_with_their_keys_ahead(chosen: Any, is_cut: bool) -> None:
    rows, numbers, _, is_masked = chosen
    data, wanted = make_chosen(rows, numbers, (), is_masked)
    kept = UncutRows([wanted.column(1)], wanted if is_cut else data, ["key", *NAMES]).to_keep()
    assert isinstance(kept, pa.RecordBatch) == is_cut
    everything = pa.RecordBatch.from_arrays([wanted.column(1), *wanted.columns.columns], ["key", *NAMES])
    assert kept.num_rows == len(numbers)
    last = np.array([len(numbers) - 1])
    for place in range(3):
        assert taken(kept, place, last).equals(everything.column(place).take(pa.array(last)))
        assert kept.column(place).equals(everything.column(place))
    assert cut(kept).equals(everything)


# --- filters ----------------------------------------------------------------------------------------------------------


def calculated(condition: Typed, expressions: Sequence[Typed] | None, rows: Sequence[Any]) -> ColumnBatch:
    """What a filter gives."""
    names = [f"c{place}" for place in range(len(expressions or SIDE))]
    found: list[Any] = []
    with OneInputOperatorHarness(partial(CalcOperator, condition, expressions, names, StreamSession())) as harness:
        harness.captured.collect = found.append  # type: ignore[assignment, method-assign]
        batch = create_batch(SIDE, rows)
        harness.operator.process_batch(ColumnBatch(batch.data, np.arange(len(rows)), batch.kinds))
    (one,) = found
    assert isinstance(one, ColumnBatch)
    return one


@pytest.mark.parametrize("text", ["a", None])
@pytest.mark.parametrize("expressions", [None, [WORD, NUMBER]])
def test_nearly_all_rows(text: str | None, expressions: list[Typed] | None) -> None:
    """Rows that are left out have NULLs, and those that are kept have them or not."""
    rows = [("+I", place, None if place % 10 == 0 else text if place == 7 else f"row {place}") for place in range(40)]
    condition = CALLS.call(
        "<>", [CALLS.call("MOD", [NUMBER, Constant(IntType(False), 10)]), Constant(IntType(False), 0)]
    )
    found = calculated(condition, expressions, rows).data
    wanted = [row[1:] if expressions is None else row[:0:-1] for row in rows if row[1] % 10]
    assert isinstance(found, ChosenColumns)
    assert found.taken(0, np.array([6])).to_pylist() == [wanted[6][0]]
    assert list(zip(*(column.to_pylist() for column in found.columns.columns), strict=True)) == wanted


ROWS = [("+I", 1, "a"), ("-D", 2, None), ("+I", None, "c"), ("+U", 4, "d")]
AT_LEAST = {least: CALLS.call(">=", [NUMBER, Constant(IntType(False), least)]) for least in (2, 4)}
DOUBLED = CALLS.call("+", [NUMBER, NUMBER])


@pytest.mark.parametrize(
    ("expressions", "wanted"),
    [
        (None, [(2, None), (4, "d")]),
        ([WORD], [(None,), ("d",)]),
        ([WORD, DOUBLED, WORD], [(None, 4, None), ("d", 8, "d")]),
        ([NUMBER, WORD, DOUBLED], [(2, None, 4), (4, "d", 8)]),
    ],
)
def test_a_filter_leaves_columns_uncut_where_it_keeps_most_rows(expressions: Any, wanted: list[Any]) -> None:
    found = calculated(AT_LEAST[2], expressions, ROWS)
    assert isinstance(found.data, ChosenColumns)
    assert not found.data.is_cut
    assert list(zip(*(column.to_pylist() for column in found.columns.columns), strict=True)) == wanted
    assert found.kinds == bytes([3, 2])
    assert found.timestamps == [1, 3]


def test_a_filter_that_keeps_few_rows_holds_nothing_else() -> None:
    found = calculated(AT_LEAST[4], [WORD, NUMBER], ROWS)
    assert not isinstance(found.data, ChosenColumns)
    assert found.columns.to_pylist() == [{"c0": "d", "c1": 4}]


def test_where_all_columns_are_computed_nothing_waits() -> None:
    found = calculated(AT_LEAST[2], [DOUBLED], ROWS)
    assert not isinstance(found.data, ChosenColumns)
    assert found.columns.to_pylist() == [{"c0": 4}, {"c0": 8}]


# --- who reads them ---------------------------------------------------------------------------------------------------


def sent(driven: Driven, side: int, rows: int, numbers: Sequence[int]) -> ChosenColumns:
    data, _ = make_chosen(rows, numbers)
    driven.harness.operator.process_batch(ColumnBatch(data), side)
    return data


def test_a_join_cuts_what_it_sends_and_the_key() -> None:
    operator = partial(
        ColumnJoinOperator, ([0], [0]), [False], None, (SIDE, SIDE), [*"abcd"], StreamSession(), SIDE[:1]
    )
    driven = Driven(operator, (SIDE, SIDE), [*SIDE, *SIDE])
    held = sent(driven, 0, 2000, range(1900))
    more = sent(driven, 0, 2000, range(100, 2000))
    assert driven.send(1, ("+I", 150, "x")) == [("+I", 150, "row 150", 150, "x")] * 2
    assert not held.is_cut
    assert not more.is_cut
    # A checkpoint has the rows, and leaves them as they are.
    restored = Driven(*driven._arguments, driven.harness.snapshot(1))
    assert not held.is_cut
    for one in (driven, restored):
        assert one.send(1, ("+I", 50, "y")) == [("+I", 50, "row 50", 50, "y")]
    asked = sent(restored, 1, 20, range(15))
    assert restored.taken() == [("+I", row, f"row {row}", row, f"row {row}") for row in range(15)]
    assert not asked.is_cut
    one, *_ = driven.harness.operator._sides[0]._rows.parts  # type: ignore[attr-defined]
    assert one.num_rows == 1900


def test_a_key_with_null_goes_nowhere_and_the_rest_stays() -> None:
    operator = partial(
        ColumnJoinOperator, ([0], [0]), [False], None, (SIDE, SIDE), [*"abcd"], StreamSession(), SIDE[:1]
    )
    driven = Driven(operator, (SIDE, SIDE), [*SIDE, *SIDE])
    whole = [pa.array([1, None, 2, None], pa.int32()), pa.array([*"abcd"])]
    driven.harness.operator.process_batch(ColumnBatch(ChosenColumns(whole, NAMES, np.arange(3), {})), 0)
    assert driven.send(1, ("+I", 2, "x"), ("+I", None, "y")) == [("+I", 2, "c", 2, "x")]


def test_a_sink_that_keeps_nothing_makes_the_columns_all_the_same() -> None:
    data, _ = make_chosen(10, range(8))
    context: Any = None
    DiscardingSink().create_writer(context).write_columns(data, None)
    assert data.is_cut
