"""Results of statements that run no job."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.table.catalog.columns import ResolvedSchema
from penstock.table.data.logical_types import LENGTH_MAX, DataType, VarCharType, literal
from penstock.table.plan.executor import ChangelogRow
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.session.result_kind import ResultKind
from penstock.table.session.table_result import TableResult
from penstock.table.session.tableau import PrintStyle, RawContent, Tableau
from penstock.table.sql.printing import format_path

STRING: Final = VarCharType(LENGTH_MAX)


def done() -> TableResult:
    """Return the result `OK` of a successful statement."""
    return _result(ResultKind.SUCCESS, [("result", STRING)], [("OK",)], is_raw=True)


def text(content: str) -> TableResult:
    """Return one text, which is printed verbatim."""
    return _result(ResultKind.SUCCESS_WITH_CONTENT, [("result", STRING)], [(content,)], is_raw=True)


def listing(column: str, values: Iterable[str]) -> TableResult:
    """Return a result with one column of names."""
    return table([(column, STRING)], [(value,) for value in values])


def table(columns: Sequence[tuple[str, DataType]], rows: Iterable[tuple[Any, ...]]) -> TableResult:
    """Return a result with several columns."""
    return _result(ResultKind.SUCCESS_WITH_CONTENT, columns, rows)


def _result(
    kind: ResultKind, columns: Sequence[tuple[str, DataType]], rows: Iterable[tuple[Any, ...]], is_raw: bool = False
) -> TableResult:
    names, types = [name for name, _ in columns], [data_type for _, data_type in columns]
    schema = RowSchema(tuple(map(PlanColumn, names, types)))
    style: PrintStyle = RawContent(schema)
    if not is_raw:
        style = Tableau(schema, fits_rows=True, width_max=sys.maxsize, null="")
    all_rows: list[ChangelogRow] = [("+I", row) for row in rows]
    return TableResult(kind, ResolvedSchema.physical(names, types), lambda: iter(all_rows), style)


def create_text(kind: str, path: Iterable[str], comment: str | None, options: Mapping[str, str]) -> str:
    """Format the CREATE statement of a catalog or database."""
    lines = [f"CREATE {kind} {format_path(path)}"]
    lines += [f"COMMENT {literal(comment)}"] if comment else []
    return "\n".join(lines + ([with_text(options)] if options else []))


def with_text(options: Mapping[str, str]) -> str:
    """Format the WITH clause, one option a line."""
    inner = ",\n".join(f"  {literal(key)} = {literal(value)}" for key, value in options.items())
    return f"WITH (\n{inner}\n)"
