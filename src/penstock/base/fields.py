"""Fields of records by name, whatever the record is."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.types import Row


def field_of(record: Any, name: str) -> Any:
    """The field of a row or dict by its key, of a tuple as `f0`, `f1`, …, and of anything else by its attribute.

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
