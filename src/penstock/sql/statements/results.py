"""Results of statements that run no job.

New names in ALTER … RENAME.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.sql.catalogs.columns import ResolvedSchema
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import LENGTH_MAX, DataType, VarCharType, literal
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import PrintStyle, RawContent, ResultKind, Tableau, TableResult

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


Path = tuple[str, str, str]


def renamed_path(full_path: Path, renamed: tuple[str, ...]) -> Path:
    """Resolve the target path of RENAME TO, which may omit the catalog and database: they cannot change."""
    new_path = (*full_path[: 3 - len(renamed)], *renamed)
    if len(new_path) != 3:
        raise ValidationError(f"a name has at most a catalog and a database before it: {'.'.join(renamed)}")
    if new_path[:2] != full_path[:2]:
        raise ValidationError(
            f"{'.'.join(full_path)} cannot become {'.'.join(new_path)}: RENAME TO keeps catalog and database"
        )
    return new_path
