"""Partition column values, which are constant in a data file and stored as text in the table's log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.exact_cast import exact_cast

#: Other characters become `_` in directory names, which are only for humans: the log has the values.
_STRANGE: Final = re.compile(r"[^A-Za-z0-9.=_-]")
_NAME_LENGTH_MAX: Final = 64
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
Texts = tuple[str | None, ...]


def check_partition_type(column: str, kind: pa.DataType) -> None:
    """Raise `UnsupportedError` for a column whose values cannot be converted to text and back."""
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise UnsupportedError(f"a Delta table cannot be partitioned by column {column!r} of type {kind}")


def to_log_texts(column: pa.Array) -> pa.Array:
    """Convert values to the log's text format."""
    kind = column.type
    if pa.types.is_string(kind):
        # Delta Lake has no empty strings here: it reads them as NULL.
        return pc.if_else(pc.equal(column, ""), None, column)
    texts = column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return texts


def parse_value(text: str | None, kind: pa.DataType, column: str) -> pa.Scalar:
    """Parse a value from the log's text format. Raises `FormatError` for invalid text."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None and not re.search(r"(Z|[+-]\d\d:?\d\d)$", text):
            text += "Z"
        return exact_cast(pa.array([text], pa.string()), kind)[0]
    except pa.ArrowException as error:
        raise FormatError(f"partition column {column!r} has the value {text!r}, which is no {kind}") from error


def build_partition_path(names: Sequence[str], texts: Texts) -> str:
    """Return the directory for files of a partition; empty if there are no partition columns."""
    parts = [f"{name}={_NULL if text is None else text}" for name, text in zip(names, texts, strict=True)]
    return "/".join(_STRANGE.sub("_", part)[:_NAME_LENGTH_MAX] for part in parts)


def by_partition(columns: Sequence[pa.Array]) -> Iterator[tuple[Texts, Any]]:
    """Yield the texts of each partition among the rows and the indices of its rows, in order."""
    codes = np.zeros(len(columns[0]), np.int64)
    dictionaries = []
    for column in columns:
        encoded = to_log_texts(column).dictionary_encode(null_encoding="encode")
        dictionaries.append(encoded.dictionary.to_pylist())
        codes = codes * len(dictionaries[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    unique_codes, inverse = np.unique(codes, return_inverse=True)
    for number, code in enumerate(unique_codes.tolist()):
        texts: list[str | None] = []
        for dictionary in reversed(dictionaries):
            code, index = divmod(code, len(dictionary))
            texts.append(dictionary[index])
        yield tuple(reversed(texts)), np.flatnonzero(inverse == number)
