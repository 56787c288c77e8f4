"""Access to a record's fields by name, for any kind of record."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.types import Row


def get_field(record: Any, name: str) -> Any:
    """Return a field: from a row or dict by key, from a tuple as `f0`, `f1`, …, and from anything else by attribute.

    Raises:
        TypeError: if the record has no such field.
    """
    try:
        if isinstance(record, Row | dict):
            return record[name]
        if type(record) is tuple or isinstance(record, list):
            return record[int(name[1:])] if name.startswith("f") else getattr(record, name)
        return getattr(record, name)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise WrongTypeError(f"a record of type {type(record).__name__} has no field {name!r}") from error
