"""All scalar functions, by name."""

from __future__ import annotations

from typing import Final

from penstock.sql.functions import (
    arrays,
    bitmaps,
    clock,
    collections,
    conditions,
    datetime,
    datetime_text,
    hashing,
    json,
    math,
    numbers,
    regex,
    string_format,
    strings,
    type_functions,
    urls,
    variants,
)
from penstock.sql.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.sql.functions.definition import ScalarFunction

_MODULES: Final = (
    arrays,
    bitmaps,
    clock,
    collections,
    conditions,
    datetime,
    datetime_text,
    hashing,
    json,
    math,
    numbers,
    regex,
    string_format,
    strings,
    type_functions,
    urls,
    variants,
)

SCALAR_FUNCTIONS: Final[dict[str, ScalarFunction]] = {}
for _module in _MODULES:
    for _function in _module.FUNCTIONS:
        for _name in (_function.name, *_function.aliases):
            assert _name not in SCALAR_FUNCTIONS, _name
            SCALAR_FUNCTIONS[_name] = _function

#: lower-case Table API names to SQL names
PYTHON_NAMES: Final = {
    function.python_name.lower(): function.name for function in SCALAR_FUNCTIONS.values() if function.python_name
}


def find_scalar(name: str) -> ScalarFunction | None:
    """Return a function by its name in capitals, or None."""
    return SCALAR_FUNCTIONS.get(name)


def is_built_in(name: str) -> bool:
    """Return whether a function or an aggregate of Flink has this name, in any case."""
    return name.upper() in SCALAR_FUNCTIONS or name.upper() in AGGREGATE_FUNCTIONS
