"""What functions give, beside Flink's answers: `python -m tests.table.functions FILE`.

FILE is JSON: `sets` of expressions over a row, with typed results and with the errors that Flink gives; `as_string`,
expressions whose results are shown as text; `aggregates`, queries over rows. Each case that is answered otherwise is
printed; `--only` takes those alone whose expression or test contains something.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
from tests.table import table_api_text
from tests.table.flink_values import UnknownTypeError, alike, calcite_type, held, parse_type, shortened, type_of_value
from tests.table.row_forms import check_forms
from tests.table.running import Rows, run

from penstock.base.errors import PenstockError
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.datetimes import moment_ns
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BinaryType,
    BitmapType,
    CharType,
    DataType,
    DecimalType,
    LocalZonedTimestampType,
    MapType,
    RowType,
    SmallIntType,
    TimestampType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.bitmaps import bitmap_bytes, bitmap_class
from penstock.sql.functions.definition import Session
from penstock.sql.functions.value_casts import fitted
from penstock.sql.parser import SqlParserError, parse_statement, syntax
from penstock.sql.typed import Field, FunctionCall, Typed

NOW_NS = 1_700_000_000_123_456_789


Check = Callable[[dict[str, Any], Any], str]


class NotApplicableError(Exception):
    """A case that is about Java."""


@dataclass
class Row:
    """The input of a set of expressions: one row."""

    names: list[str]
    types: list[DataType]
    values: list[Any]
    table: str = "testTable"
    zone: str = "UTC"

    def columns(self) -> Columns:
        """The row as columns of one value each."""
        return Columns([to_column([one], kind) for one, kind in zip(self.values, self.types, strict=True)], 1)

    def field(self, name: str) -> Typed | None:
        """A column by its name."""
        if name not in self.names:
            return None
        index = self.names.index(name)
        return Field(self.types[index], index, name)

    # as a scope of the analyser

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        if path[0] == self.table:
            path = path[1:]
        found = self.field(path[0])
        if found is None:
            raise ValidationError(f"Column '{path[0]}' not found in any table")
        return found, path[1:]

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        raise NotApplicableError("a query in an expression")

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        return None


def expressions_of(sql: str) -> list[syntax.Expression]:
    """The expressions of a list of them."""
    statement = parse_statement(f"SELECT {sql}")
    return [item.expression for item in statement.query.items]  # type: ignore[attr-defined]


def session_of(zone: str = "UTC") -> Session:
    """A session whose clock stands still."""
    return Session(ZoneInfo(zone), lambda: NOW_NS)


def typed_sql(sql: str, row: Row, session: Session) -> list[Typed]:
    """The typed expressions of a text."""
    analyser = ScalarAnalyser(row, Calls(session))
    return [analyser.typed(one) for one in expressions_of(sql)]


def typed_calls(
    texts: list[str], row: Row, session: Session, reading: table_api_text.Reading = table_api_text.READINGS[0]
) -> list[Typed]:
    """The same for expressions of the Table API."""
    calls = Calls(session)
    return [table_api_text.typed(text, calls, row.field, reading) for text in texts]


def typed_case(
    case: dict[str, Any], row: Row, session: Session, reading: table_api_text.Reading = table_api_text.READINGS[0]
) -> list[Typed]:
    """The expressions of a case, whichever way it writes them."""
    if "sql" in case:
        return typed_sql(case["sql"], row, session)
    texts = case["table_api"]
    return typed_calls([texts] if isinstance(texts, str) else texts, row, session, reading)


def in_any_reading(check: Callable[[dict[str, Any], Row, table_api_text.Reading], str]) -> Check:
    """A check that is passed if one of the readings of a text of the Table API passes it."""

    def checked(case: dict[str, Any], row: Row) -> str:
        if "table_api" not in case:
            return check(case, row, table_api_text.READINGS[0])
        found: list[str | PenstockError] = []
        for reading in table_api_text.READINGS:
            try:
                wrong: str | PenstockError = check(case, row, reading)
            except PenstockError as error:
                wrong = error
            if not wrong:
                return ""
            found.append(wrong)
        if isinstance(found[0], PenstockError):
            raise found[0]
        return found[0]

    checked.__name__ = check.__name__.removeprefix("_")
    return checked


def results(found: list[Typed], row: Row, session: Session) -> list[Any]:
    """What they give for the row, by kernels; and check that row programs give the same."""
    for one in found:
        check_forms(None, [one], [tuple(row.values)], row.types, session)
    columns = Evaluator(found, session)(row.columns())
    return [to_values(column, one.type)[0] for column, one in zip(columns, found, strict=True)]


def row_of_set(one: dict[str, Any]) -> Row:
    """The row of a set, whose columns are f0, f1 and on."""
    if one["needs_java_udf"]:
        raise NotApplicableError(f"needs {', '.join(map(str, one['needs_java_udf']))}")
    kinds = [parse_type(kind) for kind in one["types"]] if one["types"] else list(map(type_of_value, one["fields"]))
    zone = _ZONES.get(one["test"], "UTC")
    values = [_field(value, kind, zone) for value, kind in zip(one["fields"], kinds, strict=True)]
    return Row([f"f{index}" for index in range(len(kinds))], kinds, values, zone=zone)


#: the time zones of tests that have one of their own
_ZONES = {"CastFunctionITCase": "Asia/Shanghai", "ComparisonFunctionITCase": "America/Los_Angeles"}


def _field(written: Any, kind: DataType, zone: str) -> Any:
    """A value as Flink's tests make it: a literal that is cast to the type of its column."""
    value = held(written, kind)
    if isinstance(kind, LocalZonedTimestampType) and isinstance(written, dict) and written["$"] == "timestamp":
        value = moment_ns(value, ZoneInfo(zone))
    return _cast(value, kind)


def _cast(value: Any, kind: DataType) -> Any:
    """A held value as one of its type: cut or padded to its length, its digits or its bits."""
    if value is None:
        return None
    match kind:
        case DecimalType():
            return fitted(value, kind.precision, kind.scale)
        case CharType():
            return value.ljust(kind.length)[: kind.length]
        case VarCharType():
            return value[: kind.length]
        case BinaryType():
            return value.ljust(kind.length, b"\0")[: kind.length]
        case VarBinaryType():
            return value[: kind.length]
        case SmallIntType() | TinyIntType():
            half = 2**7 if isinstance(kind, TinyIntType) else 2**15
            return (value + half) % (2 * half) - half
        case TimestampType() | LocalZonedTimestampType():
            unit_ns = 10 ** (9 - kind.precision)
            return value - value % unit_ns
        case ArrayType():
            return [_cast(one, kind.element_type) for one in value]
        case MapType():
            # Of equal keys the last one counts.
            pairs = [(_cast(key, kind.key_type), _cast(one, kind.value_type)) for key, one in value]
            return [
                pair for place, pair in enumerate(pairs) if all(pair[0] != later[0] for later in pairs[place + 1 :])
            ]
        case RowType():
            return tuple(map(_cast, value, kind.field_types()))
        case _:
            return value


@in_any_reading
def check_case(case: dict[str, Any], row: Row, reading: table_api_text.Reading) -> str:
    """What is wrong with the answer to a case, or nothing."""
    session = session_of(row.zone)
    found = typed_case(case, row, session, reading)
    answers = results(found, row, session)
    for expression, answer, wanted, kind in zip(found, answers, case["results"], case["types"], strict=False):
        expected = parse_type(kind)
        if expression.type.nullable() != expected.nullable() or expression.type != expected:
            return f"type {expression.type}, not {expected}"
        if not alike(shortened(answer, expected), shortened(held(wanted, expected), expected)):
            return f"{answer!r}, not {held(wanted, expected)!r}"
    return ""


@in_any_reading
def check_error(case: dict[str, Any], row: Row, reading: table_api_text.Reading) -> str:
    """As `check_case`, for a case that must fail: when it is planned (`validation`), or when it runs."""
    session = session_of(row.zone)
    try:
        found = typed_case(case, row, session, reading)
    except (ValidationError, SqlParserError):
        return "" if case.get("validation", True) else "refused when planned, not when it runs"
    try:
        answers = results(found, row, session)
    except TableRuntimeError:
        return "refused when it runs, not when planned" if case.get("validation", False) else ""
    return f"{answers!r}, not an error: {case['message'][:100]!r}"


def check_text(case: dict[str, Any], row: Row) -> str:
    """As `check_case`, for a case whose answer is shown as text."""
    session = session_of(case["time_zone"])
    (found,) = typed_sql(case["sql"], row, session)
    text = FunctionCall(VarCharType(LENGTH_MAX), "CAST", (found,))
    (answer,) = results([text], row, session)
    shown = "NULL" if answer is None else answer
    if shown != case["expected"]:
        return f"{shown!r}, not {case['expected']!r}"
    kind = calcite_type(found.type)
    return "" if kind == case["type"] else f"type {kind}, not {case['type']}"


def row_of_text(one: dict[str, Any]) -> Row:
    """The row of cases whose answers are shown as text."""
    kind = parse_type(one["row_type"]) if one["row_type"] != "Row" else RowType()
    assert isinstance(kind, RowType)
    types = [_calcite_column(one) for one in kind.field_types()]
    values = [_field(value, field, "UTC") for value, field in zip(one["row"][1:], types, strict=True)]
    return Row(kind.field_names(), types, values)


def _calcite_column(kind: DataType) -> DataType:
    """The type of a column, whose intervals of months have years, too."""
    return YearMonthIntervalType(nullable=kind.is_nullable) if isinstance(kind, YearMonthIntervalType) else kind


def table_of_aggregates(one: dict[str, Any]) -> Rows:
    """The rows that queries of aggregates read."""
    row = parse_type(one["source_type"])
    assert isinstance(row, RowType)
    kinds = row.field_types()
    rows = [
        (change, tuple(_held(value, kind) for value, kind in zip(values, kinds, strict=True)))
        for change, *values in one["source_rows"]
    ]
    return Rows(dict(zip(row.field_names(), kinds, strict=True)), rows)


def _held(value: Any, kind: DataType) -> Any:
    """A value of a query of aggregates; of a bitmap whose text is cut off, all numbers up to the middle."""
    if isinstance(kind, BitmapType) and value is not None and value["v"].endswith(",...}"):
        return bitmap_bytes(bitmap_class()(range(int(value["v"][1:].split(",")[0]), 2**31)))
    return held(value, kind)


def build_query(case: dict[str, Any]) -> str:
    """The query of a case, which may be of the Table API."""
    if "sql" in case:
        return str(case["sql"])
    selected = ", ".join(re.sub(r"\barray\(([^()]*)\)", r"ARRAY[\1]", one) for one in case["select"])
    grouped = f" GROUP BY {', '.join(case['group_by'])}" if case["group_by"] else ""
    return f"SELECT {selected} FROM src{grouped}"


def check_aggregate(case: dict[str, Any], source: Rows) -> str:
    """As `check_case`, for a query of aggregates."""
    is_error = "error_class" in case
    try:
        found = run(build_query(case), src=source)
    except (ValidationError, SqlParserError) as error:
        return "" if is_error and "Validation" in case["error_class"] else f"refused: {error}"
    except PenstockError as error:
        return "" if is_error and "Validation" not in case["error_class"] else f"{type(error).__name__}: {error}"
    if is_error:
        return f"{found.rows()!r}, not an error"
    expected = parse_type(case["expected_type"])
    assert isinstance(expected, RowType)
    if found.types != expected.field_types():
        return f"type {', '.join(map(str, found.types))}, not {expected}"
    rows = [shortened(one, expected) for one in found.rows()]
    wanted = [shortened(tuple(map(_held, values, found.types)), expected) for _, *values in case["expected_rows"]]
    missing = [one for one in wanted if not any(alike(one, other) for other in rows)]
    return f"{rows!r}, not {wanted!r}" if missing or len(rows) != len(wanted) else ""


def cases_of(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Callable[[], Any], Check]]:
    """All cases: the test, the case, its row, and how it is checked."""
    for one in data["sets"]:
        label = f"{one['test']} {one['function'] or one['description'] or ''}"
        for case in one["cases"]:
            yield label, case, lambda one=one: row_of_set(one), check_case  # type: ignore[misc]
        for case in one["errors"]:
            yield label, case, lambda one=one: row_of_set(one), check_error  # type: ignore[misc]
    for one in data["aggregates"]:
        label = f"{one['test']} {one['function'] or one['description']}"
        for case in one["cases"]:
            yield label, case, lambda one=one: table_of_aggregates(one), check_aggregate  # type: ignore[misc]
    for one in data["as_string"]:
        for case in one["cases"]:
            yield one["test"], case, lambda one=one: row_of_text(one), check_text  # type: ignore[misc]
        for case in one["errors"]:
            yield one["test"], case, lambda one=one: row_of_text(one), check_error  # type: ignore[misc]


def outcome(case: dict[str, Any], row: Callable[[], Any], check: Check) -> str:
    """What is wrong, or nothing. Raises `NotApplicableError` for what is about Java."""
    try:
        return check(case, row())
    except (PenstockError, SqlParserError) as error:
        return f"{type(error).__name__}: {error}"
    except (NotApplicableError, UnknownTypeError) as error:
        raise NotApplicableError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - a runner goes on
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


def native_in_spark(data: dict[str, Any], only: str, quiet: bool) -> None:
    """Ask Spark for all expressions that it has natively, the sets of many cases in a query, and compare."""
    from tests.table.batch.batches import in_spark, shifted

    from penstock.sql.spark.native import native_text

    types: list[DataType] = []
    values: list[Any] = []
    asked: list[tuple[str, Typed, Any]] = []
    for one in data["sets"]:
        if only not in f"{one['test']} {one['function'] or one['description'] or ''}":
            continue
        try:
            row = row_of_set(one)
        except (NotApplicableError, UnknownTypeError):
            continue
        for case in one["cases"]:
            try:
                found = typed_case(case, row, session_of(row.zone))
            except (PenstockError, SqlParserError, NotApplicableError, UnknownTypeError):
                continue
            for expression, wanted, kind in zip(found, case["results"], case["types"], strict=False):
                if isinstance(expression, FunctionCall) and native_text(expression, str) is not None:
                    asked.append((str(expression), shifted(expression, len(types)), held(wanted, parse_type(kind))))
        types += row.types
        values += row.values
    columns = [to_column([one], kind) for one, kind in zip(values, types, strict=True)]
    right = 0
    for start in range(0, len(asked), _AT_ONCE):
        part = asked[start : start + _AT_ONCE]
        answers = in_spark([expression for _, expression, _ in part], types, columns)
        for (text, _, wanted), (answer,) in zip(part, answers, strict=True):
            right += alike(answer, wanted)
            if not alike(answer, wanted) and not quiet:
                print(f"{text}: {answer!r}, not {wanted!r}")
    print(f"{right} of {len(asked)} native expressions give in Spark what Flink gives")


#: how many expressions Spark is asked for in a query
_AT_ONCE = 200


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Only cases whose expression or test contains this.")
@click.option("--quiet", is_flag=True, help="Print the sums alone.")
@click.option("--mode", default="STREAMING", help="BATCH: what Spark answers natively, in Spark.")
def main(file: Path, only: str, quiet: bool, mode: str) -> None:
    """Compare answers."""
    logging.disable(logging.WARNING)
    if mode.upper() == "BATCH":
        native_in_spark(json.loads(file.read_text()), only, quiet)
        return
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for label, case, row, check in cases_of(json.loads(file.read_text())):
        shown = str(case.get("sql", case.get("table_api", case.get("select"))))
        if only not in shown and only not in label:
            continue
        kind = check.__name__.removeprefix("check_")
        try:
            wrong = outcome(case, row, check)
        except NotApplicableError as error:
            skipped[str(error)[:80]] += 1
            continue
        total[kind] += 1
        right[kind] += not wrong
        if wrong and not quiet:
            text = f"{label}: {shown[:300]}\n    {wrong[:400]}"
            print(text.encode(errors="replace").decode())
    for reason, count in skipped.items():
        print(f"{count} do not apply: {reason}")
    for kind in total:
        print(f"{kind}: {right[kind]} of {total[kind]}")
    print(f"{right.total()} of {total.total()} give what Flink gives")


if __name__ == "__main__":
    main()
