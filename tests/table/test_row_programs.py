"""Small batches run row programs: they give what kernels give, for random expressions and rows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from tests.table.differential import kinds
from tests.table.differential.chance import Chance
from tests.table.differential.dialects import in_flink
from tests.table.differential.expressions import Expressions
from tests.table.differential.kinds import Kind
from tests.table.differential.relations import Column, Relation
from tests.table.functions import Row, session_of, typed_sql
from tests.table.row_forms import Rows, arrow_batch, check_forms

from penstock.base.errors import PenstockError
from penstock.codecs.column_data import ColumnData
from penstock.runtime.columns import ColumnBatch, ColumnKey
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import IntType, RowType, VarCharType
from penstock.sql.expressions import row_program
from penstock.sql.expressions.row_program import ROWS_MAX, build_row_program
from penstock.sql.functions import scalar_forms
from penstock.sql.functions.scalar_forms import ScalarForm
from penstock.sql.stream.calc import CalcOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, transformed
from penstock.testing import OneInputOperatorHarness

SESSION: Final = session_of()
CASES: Final = 1_500
INT: Final = IntType()
TEXT: Final = VarCharType()
DEPTH: Final = 3
_KINDS: Final = (
    kinds.INT,
    kinds.TEXT,
    kinds.TIME,
    kinds.LONG,
    kinds.DOUBLE,
    kinds.FLOAT,
    kinds.MONEY,
    kinds.HUGE,
    kinds.BOOLEAN,
    kinds.DATE,
    kinds.CLOCK,
    kinds.STAMP,
    kinds.MOMENT,
    kinds.INSTANT,
    kinds.BYTES,
    kinds.SMALL,
    kinds.TINY,
    kinds.CODE,
    kinds.PAIR,
)
#: values that the differential tester leaves out, because its other side has other rules for them
_MORE_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "INT": (2**31 - 1, -(2**31), 7),
    "TEXT": ("Äß", "a,b,,c", " x ", "12", "-7.5", "x\ny", "TRUE"),
    "TIME": (1_714_564_800_123_000_000, -86_400_000_000_000),
    "LONG": (0, -1, 7),
}
_NUMBERS: Final = (kinds.INT, kinds.LONG, kinds.DOUBLE, kinds.MONEY, kinds.HUGE, kinds.SMALL, kinds.TINY)
_COLUMNS: Final = tuple(Column(f"c{index}", kind) for index, kind in enumerate(_KINDS))
_RELATION: Final = Relation("", _COLUMNS)
_TYPES: Final = [kind.type for kind in _KINDS]


class _MoreExpressions(Expressions):
    """The expressions of the differential tester, and those that its other side evaluates by rules of its own."""

    def _own(self, kind: Kind, one: str, other: str) -> list[str]:
        more: list[str] = []
        if kind == kinds.INT:
            text, time = self._name(kinds.TEXT), self._name(kinds.TIME)
            more = [
                f"({one} / {other})",
                f"MOD({one}, {other})",
                f"(-{one})",
                f"CHAR_LENGTH({text})",
                f"CAST({self._name(self._pick(_NUMBERS))} AS INT)",
                f"TRY_CAST({text} AS INT)",
                f"CAST(HOUR({time}) AS INT)",
                f"CAST(EXTRACT(DAY FROM {time}) AS INT)",
                f"CASE WHEN {other} <> 0 THEN {one} / {other} END",
            ]
        elif kind == kinds.TEXT:
            more = [
                f"LOWER({one})",
                f"SUBSTRING({one}, {self._number(-2, 3)}, 2)",
                f"TRIM({one})",
                f"SPLIT_INDEX({one}, ',', {self._number(0, 2)})",
                f"REPLACE({one}, 'x', 'zz')",
                f"CAST({self._name(self._pick([*_NUMBERS, kinds.STAMP, kinds.BOOLEAN]))} AS STRING)",
                f"CAST(CAST({one} AS VARCHAR(1)) AS STRING)",
                f"DATE_FORMAT({self._name(kinds.TIME)}, '{self._pick(['yyyy-MM-dd', 'HH:mm', 'E d MMM'])}')",
                f"CASE WHEN {one} LIKE '%x_' THEN {one} ELSE {other} END",
            ]
        elif kind == kinds.TIME:
            more = [
                f"CAST({self._name(kinds.STAMP)} AS TIMESTAMP(6))",
                f"CAST({self._name(kinds.MOMENT)} AS TIMESTAMP(3))",
            ]
        return [*super()._own(kind, one, other), *more]

    def number(self) -> str:
        """An expression of two numbers of any types, whose own type follows from them."""
        one, other = (self._name(self._pick(_NUMBERS)) for _ in range(2))
        return self._pick(
            [
                f"{one} {self._pick(['+', '-', '*', '/', '%'])} {other}",
                f"-{one}",
                f"ABS({one})",
                f"{one} * 0.908",
                f"CAST({one} AS {self._pick(['DECIMAL(5, 1)', 'DECIMAL(23, 3)', 'BIGINT', 'TINYINT', 'DOUBLE'])})",
                f"{one} IN (1, 2.5, NULL)",
                f"{one} IS DISTINCT FROM {one}",
                f"{one} {self._pick(['=', '<>', '<', '>='])} {other}",
                f"COALESCE({one}, {one} + 1)",
                f"{one} IS {self._pick(['NULL', 'NOT NULL'])}",
            ]
        )

    def _name(self, kind: Kind) -> str:
        (name,) = _RELATION.list_columns(kind)
        return name


def _rows(chance: Chance, count: int) -> Rows:
    values = [(*kind.values, *_MORE_VALUES.get(kind.name, ()), None) for kind in _KINDS]
    return [tuple(chance.pick(choices) for choices in values) for _ in range(count)]


def _typed(sql: str) -> Typed | None:
    """The expression of a text; None for one that Flink refuses, too."""
    row = Row([column.name for column in _COLUMNS], _TYPES, [None] * len(_TYPES))
    try:
        (found,) = typed_sql(in_flink(sql), row, SESSION)
    except PenstockError:  # random arithmetic of any two types
        return None
    return found


def _with_constant(expression: Typed, index: int, value: Any) -> Typed:
    """The expression with a constant in place of a column."""
    constant = Constant(_TYPES[index], value)
    return transformed(expression, lambda part: constant if isinstance(part, Field) and part.index == index else part)


def _case(seed: str) -> tuple[Typed | None, list[Typed], Rows]:
    """A condition or none, expressions, and rows."""
    chance = Chance(seed)
    made = _MoreExpressions(chance.branch("expressions"))
    texts = [made.expression(_RELATION, chance.pick((kinds.INT, kinds.TEXT, kinds.TIME)), DEPTH) for _ in range(2)]
    texts.append(made.number())
    condition = _typed(made.condition(_RELATION, DEPTH)) if chance.flag() else None
    expressions = [expression for text in texts if (expression := _typed(text)) is not None]
    if chance.flag():
        index = chance.number(0, len(_KINDS) - 1)
        value = chance.pick(_KINDS[index].values)
        condition = None if condition is None else _with_constant(condition, index, value)
        expressions = [_with_constant(expression, index, value) for expression in expressions]
    return condition, expressions, _rows(chance.branch("rows"), chance.number(1, 6))


def _compare(cases: int) -> int:
    """Compare the forms of random cases, and return how many have a row form."""
    return sum(check_forms(*_case(f"rows/{number}"), _TYPES, SESSION) for number in range(cases))


def test_row_programs_give_what_kernels_give() -> None:
    compared = _compare(CASES)
    assert compared > CASES * 9 // 10, "nearly all of these functions have a scalar form"


def _without(text: str, **more: Any) -> Callable[[Any], ScalarForm]:
    return lambda call: ScalarForm(text, **more)


def _eager_case(writer: Any, operands: Any) -> Any:
    for operand in operands:
        writer.value(operand)
    return row_program._Writer.case(writer, operands)


_PLANTED: Final[dict[str, tuple[dict[str, Any], str, Any]]] = {
    "NULL is equal to nothing and not unknown": (scalar_forms._OF_CALLS, "=", _without("{0} == {1}", takes_null=True)),
    "NOT of NULL is true": (scalar_forms._OF_CALLS, "NOT", _without("not {0}", takes_null=True)),
    "a sum leaves its type": (scalar_forms._OF_CALLS, "+", _without("{0} + {1}")),
    "the negative of 0.0 is 0.0": (scalar_forms._OF_CALLS, "MINUS_PREFIX", _without("0 - {0}")),
    "quotients are rounded down": (scalar_forms._OF_CALLS, "/", _without("{0} // {1}")),
    "CASE evaluates every value": (row_program._LAZY, "CASE", _eager_case),
    "AND of NULL and false is unknown": (
        row_program._LAZY,
        "AND",
        lambda writer, operands: writer._applied(
            ScalarForm(" and ".join(f"{{{index}}}" for index in range(len(operands)))),
            list(map(writer.value, operands)),
        ),
    ),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_the_comparison_finds_wrong_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wrong form is found, as a difference or because it fails where no kernel does."""
    table, function, wrong = _PLANTED[name]
    monkeypatch.setitem(table, function, wrong)
    with pytest.raises(Exception, match=r"kernels:|division|unsupported operand"):
        _compare(CASES)


# --- the operator -----------------------------------------------------------------------------------------------------


def _run(condition: Typed | None, expressions: list[Typed] | None, batches: list[ColumnBatch]) -> list[Any]:
    """What a step emits for batches: schemas, rows, times and kinds; or the texts of its error."""
    names = [f"f{index}" for index in range(len(_TYPES if expressions is None else expressions))]
    emitted: list[Any] = []
    with OneInputOperatorHarness(
        lambda: CalcOperator(condition, expressions, names, StreamSession()), name="Calc"
    ) as step:
        step.captured.collect = emitted.append  # type: ignore[assignment,method-assign]
        try:
            for batch in batches:
                step.operator.process_batch(batch)
        except UserCodeError as error:
            return [str(error), str(error.__cause__)]
    return [
        (one.columns.schema.to_string(), repr(one.columns.to_pylist()), one.timestamps, one.kinds) for one in emitted
    ]


def _cut(rows: Rows, size: int, of_arrow: bool) -> list[ColumnBatch]:
    """Rows in batches of a size, with times and kinds."""
    data = ColumnData(arrow_batch(rows, _TYPES))
    if not of_arrow:
        data = RowData(RowLayout([column.name for column in _COLUMNS], _TYPES), rows)
    whole = ColumnBatch(data, np.arange(len(rows)), bytes(index % 4 for index in range(len(rows))))
    return [whole.slice(start, start + size) for start in range(0, len(rows), size)]


@pytest.mark.parametrize("size", [1, 3, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX])
@pytest.mark.parametrize("of_arrow", [True, False])
def test_a_step_emits_the_same_rows_for_batches_of_any_size(
    size: int, of_arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around the border between both forms; with its rows, times, kinds, and the types of its columns."""
    for number in range(40):
        condition, expressions, _ = _case(f"steps/{number}")
        rows = _rows(Chance(f"steps/{number}"), 2 * ROWS_MAX)
        columns = None if number % 8 == 0 else expressions
        if columns is not None and number % 3 == 0 and (without_form := _typed("POWER(c0, 2)")) is not None:
            # Kernels compute this one, whose place varies, and the program the others.
            place = number % (len(columns) + 1)
            columns = [*columns[:place], without_form, *columns[place:]]
            if number % 2:
                columns.append(without_form)
        given = _run(condition, columns, _cut(rows, size, of_arrow))
        with monkeypatch.context() as patch:
            patch.setattr(row_program, "ROWS_MAX", 0)
            expected = _run(condition, columns, _cut(rows, size, of_arrow=True))
        assert given == expected


def test_an_error_has_the_text_of_the_kernels() -> None:
    """The step, its rows, and the expression that kernels evaluate first: not the one of the first row."""
    texts = ["CAST(c1 AS INT)", "c0 / (c0 - c0)"]
    expressions = [expression for text in texts if (expression := _typed(text)) is not None]
    rows = _rows(Chance("errors"), 3)
    rows[0] = (1, "12", *rows[0][2:])
    rows[1] = (1, "x", *rows[1][2:])
    assert build_row_program(None, expressions, SESSION) is not None
    (error, cause) = _run(None, expressions, _cut(rows, len(rows), of_arrow=True))
    assert "Calc" in error
    assert "a batch of 3 rows" in error
    assert cause == "For input string: 'x'. It cannot be read as a whole number."


@pytest.mark.parametrize(
    "text", ["RAND()", "POWER(c0, 2)", "c0 + CAST(RAND() * 10 AS INT)", "CAST(c7 AS ARRAY<STRING>)"]
)
def test_expressions_without_a_scalar_form_have_no_program(text: str) -> None:
    expression = _typed(text)
    if expression is None:  # refused by the analyser
        return
    assert build_row_program(None, [expression], SESSION) is None
    assert build_row_program(expression, [], SESSION) is None


def test_other_arrow_types_than_the_plan_expects_run_by_kernels() -> None:
    """A program reads the values of columns as the plan has their types: other units of time would be other times."""
    time = Field(kinds.TIME.type, 0, "c0")
    program = build_row_program(None, [time], SESSION)
    assert program is not None
    assert program.takes(ColumnData(pa.RecordBatch.from_arrays([pa.array([1], pa.timestamp("ms"))], ["c0"])))
    assert not program.takes(ColumnData(pa.RecordBatch.from_arrays([pa.array([1], pa.timestamp("us"))], ["c0"])))


@pytest.mark.parametrize("index", range(len(_KINDS)))
@pytest.mark.parametrize("form", ["c{} IS NULL", "c{} IS NOT NULL"])
def test_python_does_not_warn_about_constants(index: int, form: str) -> None:
    """The optimizer puts constants of a projection into the conditions above it. Tests make errors of warnings."""
    tested = _typed(form.format(index))
    assert tested is not None
    expression = _with_constant(tested, index, _KINDS[index].values[0])
    assert check_forms(expression, [expression], _rows(Chance("constants"), 2), _TYPES, SESSION)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_fields_of_a_row_that_is_null_are_null(start: int) -> None:
    """Whatever lies in the columns of the fields there, in slices of a batch too."""
    inner = RowType().add("n", INT)
    outer = RowType().add("t", TEXT).add("r", inner)
    numbers = pa.StructArray.from_arrays([pa.array([1, 2, 3, 4], pa.int32())], ["n"], mask=_mask(False, False, True))
    arrays = [pa.array([*"abcd"]), numbers]
    rows = pa.StructArray.from_arrays(arrays, ["t", "r"], mask=_mask(False, True, False))
    batch = pa.RecordBatch.from_arrays([rows], ["c0"]).slice(start)
    row = Field(outer, 0, "c0")
    text, nested = (
        FunctionCall(kind, "FIELD", (row, Constant(INT, index))) for index, kind in enumerate((TEXT, inner))
    )
    number = FunctionCall(INT, "FIELD", (nested, Constant(INT, 0)))
    program = build_row_program(None, [text, number], SESSION)
    assert program is not None
    wanted = [("a", 1), (None, None), ("c", None), ("d", 4)][start:]
    assert program.project(ColumnData(batch), range(len(wanted))) == wanted


def _mask(*is_null: bool) -> pa.Array:
    return pa.array([*is_null, False])


def test_a_repeated_part_is_computed_once_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(value: int) -> int:
        calls.append(value)
        return -value

    monkeypatch.setitem(scalar_forms._OF_CALLS, "ABS", _without("{counted}({0})", names={"counted": counted}))
    expressions = [expression for text in ("ABS(c0) + 1", "ABS(c0) + 2") if (expression := _typed(text)) is not None]
    program = build_row_program(None, expressions, SESSION)
    assert program is not None
    rows = [(value, *row[1:]) for value, row in zip((5, 6), _rows(Chance("repeated"), 2), strict=True)]
    assert program.project(ColumnData(arrow_batch(rows, _TYPES)), range(2)) == [(-4, -3), (-5, -4)]
    assert calls == [5, 6]


def test_processing_time_is_read_once_for_a_batch_in_milliseconds() -> None:
    ticks = iter(range(1_999_999, 9_000_000, 1_000_000))
    session = replace(SESSION, now=lambda: next(ticks))
    expressions = [_typed("PROCTIME()"), _typed("COALESCE(PROCTIME(), PROCTIME())"), _typed("c0")]
    program = build_row_program(None, [part for part in expressions if part is not None], session)
    assert program is not None
    rows = _rows(Chance("now"), 2)
    tuples = RowData(RowLayout([column.name for column in _COLUMNS], _TYPES), rows)
    batches: list[ColumnData] = [tuples, ColumnData(arrow_batch(rows, _TYPES))]
    for now, data in zip((10**6, 2 * 10**6), batches, strict=True):
        assert program.project(data, range(2)) == [(now, now, row[0]) for row in rows]


def test_rows_travel_and_are_sliced_as_rows() -> None:
    """Pickled rows arrive as rows with the same columns, bit for bit; a slice has its rows alone."""
    rows = _rows(Chance("travel"), 20)
    data = RowData(RowLayout([column.name for column in _COLUMNS], _TYPES), rows)
    expected = _shown(arrow_batch(rows, _TYPES))
    arrived = pickle.loads(pickle.dumps(data, protocol=5))
    assert isinstance(arrived, RowData)
    assert repr(arrived.tuples) == repr(rows)
    assert _shown(arrived.columns) == expected
    assert _shown(data[5:9].columns) == expected[5:9]
    assert _shown(data.take(np.array([7, 3])).columns) == [expected[7], expected[3]]
    assert data.taken(0, np.array([7, 3])).to_pylist() == [rows[7][0], rows[3][0]]


def _shown(columns: pa.RecordBatch) -> list[str]:
    """The rows as text, in which NaN is equal to itself."""
    return list(map(repr, columns.to_pylist()))


@pytest.mark.parametrize("size", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("keys", [("c0",), ("c1",), ("c0", "c1"), ("c4",)])
def test_rows_go_to_the_channels_that_columns_go_to(size: int, keys: tuple[str, ...]) -> None:
    """D4: whether a few keys are looked up in Python or many by kernels."""
    rows = _rows(Chance("channels"), size)
    ways: list[list[tuple[int, list[str]]]] = []
    layout = RowLayout([column.name for column in _COLUMNS], _TYPES)
    for data in (RowData(layout, rows), ColumnData(arrow_batch(rows, _TYPES))):
        partitioner = HashPartitioner(ColumnKey(keys))
        partitioner.set_up(0, 3, 128)
        ways.append([(channel, _shown(part.columns)) for channel, part in partitioner.split(ColumnBatch(data))])  # type: ignore[attr-defined]
    assert ways[0] == ways[1]
    assert sorted(text for _, part in ways[0] for text in part) == sorted(_shown(arrow_batch(rows, _TYPES)))
    expected = partitioner_of_values(rows, keys)
    assert {channel: len(part) for channel, part in ways[0]} == expected


def partitioner_of_values(rows: Rows, keys: tuple[str, ...]) -> dict[int, int]:
    """How many rows each channel gets by the hash of single records."""
    partitioner = HashPartitioner(ColumnKey(keys))
    partitioner.set_up(0, 3, 128)
    values = ColumnData(arrow_batch(rows, _TYPES)).rows()
    return dict(Counter(channel for channel, part in partitioner.split(Batch(values)) for _ in range(len(part))))
