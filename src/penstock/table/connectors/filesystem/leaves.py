"""Prunes row columns in files to the fields that are read, for formats that find fields by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.table.connectors.filesystem.source import OutputColumn
from penstock.table.data.logical_types import DataType, RowField, RowType
from penstock.table.plan.row_schema import RowSchema

_Path = tuple[int, ...]


def with_fields_alone(stored: RowSchema, columns: Sequence[OutputColumn]) -> tuple[RowSchema, tuple[OutputColumn, ...]]:
    """Return the stored columns with only the required fields, and the output columns with matching paths."""
    paths: dict[str, list[_Path]] = {}
    for output_column in columns:
        if not output_column.is_partition and output_column.metadata is None:
            paths.setdefault(output_column.name, []).append(output_column.path)
    kinds = {
        column.name: _cut(column.type, paths[column.name]) if all(paths.get(column.name, [()])) else column.type
        for column in stored
    }
    schema = RowSchema(tuple(replace(column, type=kinds[column.name]) for column in stored))
    moved = tuple(
        replace(output, path=_place(output.path, paths[output.name]))
        if output.path and all(paths[output.name])
        else output
        for output in columns
    )
    return schema, moved


def _cut(kind: DataType, paths: Sequence[_Path]) -> DataType:
    """Return a row type with only the fields on these paths; it is unchanged if a path is empty."""
    if not all(paths):
        return kind
    assert isinstance(kind, RowType)
    fields = [
        RowField(kind.fields[index].name, _cut(kind.fields[index].data_type, _below(index, paths)))
        for index in _firsts(paths)
    ]
    return RowType(fields, kind.is_nullable)


def _place(path: _Path, paths: Sequence[_Path]) -> _Path:
    """Return the path to the same field in the type that `_cut` returns."""
    if not path or not all(paths):
        return path
    return (_firsts(paths).index(path[0]), *_place(path[1:], _below(path[0], paths)))


def _firsts(paths: Sequence[_Path]) -> list[int]:
    return sorted({path[0] for path in paths})


def _below(index: int, paths: Sequence[_Path]) -> list[_Path]:
    return [path[1:] for path in paths if path[0] == index]
