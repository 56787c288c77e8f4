"""Hive-style partition directories: `day=2020-12-30/hour=12`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import FormatError, UnsupportedError
from penstock.table.connectors.formats.text_columns import ReadColumn, TextRules, column_reader
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.functions.cast_to_text import text_kernel
from penstock.table.functions.definition import Session
from penstock.table.plan.row_schema import RowSchema

#: the characters that are percent-encoded in directory names
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{\[\]^]')
_TYPES: Final = (
    types.CharType,
    types.VarCharType,
    types.BooleanType,
    types.IntegralType,
    types.FloatType,
    types.DoubleType,
    types.DecimalType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
)
_STRING: Final = types.VarCharType(types.LENGTH_MAX)


def escaped(text: str) -> str:
    """Return a name or value as encoded in a directory name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def check_types(title: str, schema: RowSchema, keys: Sequence[str]) -> None:
    """Raise `UnsupportedError` for partition columns whose values cannot be directory names."""
    for column in schema:
        if column.name in keys and not isinstance(column.type, _TYPES):
            raise UnsupportedError(
                f"table {title} cannot be partitioned by column '{column.name}' of type {column.type}"
            )


def build_partition_path(partition: Mapping[str, str | None], keys: Sequence[str], default_name: str) -> str:
    """Return the directory of a partition, relative to the path of its table."""
    return "/".join(f"{escaped(key)}={escaped(partition[key] or default_name)}" for key in keys)


def parse_partition(path: str, keys: Sequence[str], default_name: str) -> dict[str, str | None]:
    """Return the partition values in a file's path. Raises `FormatError` if the file is not in a partition."""
    values: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and unquote(name) in keys:
            text = unquote(value)
            values[unquote(name)] = None if text == default_name else text
    absent = [key for key in keys if key not in values]
    if absent:
        raise FormatError(f"{path} is in no partition: no directory of its path is called {absent[0]}=…")
    return values


class PartitionTexts:
    """Computes the directory of each row."""

    def __init__(self, keys: Sequence[str], kinds: Sequence[DataType], default_name: str) -> None:
        self._keys = keys
        self._default = default_name
        self._shows = [
            None if isinstance(kind, types.VarCharType) else text_kernel(kind, _STRING, Session()) for kind in kinds
        ]

    def directories(self, columns: Sequence[pa.Array]) -> pa.DictionaryArray:
        """Return the directories, dictionary-encoded, of rows with these values of the partition columns."""
        parts = []
        for key, show, column in zip(self._keys, self._shows, columns, strict=True):
            texts = (column if show is None else show(column)).dictionary_encode()
            names = [f"{escaped(key)}={escaped(text or self._default)}" for text in texts.dictionary.to_pylist()]
            null = f"{escaped(key)}={escaped(self._default)}"
            parts.append(pa.array(names, pa.string()).take(texts.indices).fill_null(null))
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
        return joined.dictionary_encode()


class PartitionValues:
    """Computes partition columns: one value for all rows of a file."""

    def __init__(self, kinds: Mapping[str, DataType], default_name: str) -> None:
        self._kinds = dict(kinds)
        self._default = default_name
        self._reads: dict[str, ReadColumn] = {
            name: column_reader(kind, TextRules(), f"column '{name}'") for name, kind in kinds.items()
        }

    def of_file(self, path: str) -> dict[str, pa.Scalar]:
        """Return the values of a file's partition columns. Raises `FormatError` for an invalid value."""
        scalars = {}
        for name, text in parse_partition(path, list(self._kinds), self._default).items():
            values, bad = self._reads[name](pa.array([text], pa.string()))
            if bad is not None:
                raise FormatError(f"{path}: partition column '{name}': {text!r} is no {self._kinds[name]}")
            scalars[name] = values[0]
        return scalars
