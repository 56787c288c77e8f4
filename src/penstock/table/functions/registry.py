"""All scalar functions, by name."""

from __future__ import annotations

from typing import Final

from penstock.table.functions import (
    addresses,
    arithmetic,
    arrays,
    bitmaps,
    clock,
    collection_values,
    comparison,
    control,
    encodings,
    epoch_times,
    hash_code,
    json_construction,
    json_query,
    maps,
    mathematics,
    number_texts,
    patterns,
    random_numbers,
    regular_expressions,
    rounding,
    rounding_time,
    rows,
    temporal_differences,
    temporal_formats,
    temporal_parts,
    temporal_texts,
    text,
    text_building,
    text_checks,
    text_format,
    text_parts,
    time_attributes,
    type_functions,
    variants,
)
from penstock.table.functions.definition import ScalarFunction

_MODULES: Final = (
    addresses,
    arithmetic,
    arrays,
    bitmaps,
    clock,
    collection_values,
    comparison,
    control,
    encodings,
    epoch_times,
    hash_code,
    json_construction,
    json_query,
    maps,
    mathematics,
    number_texts,
    patterns,
    random_numbers,
    regular_expressions,
    rounding,
    rounding_time,
    rows,
    temporal_differences,
    temporal_formats,
    temporal_parts,
    temporal_texts,
    text,
    text_building,
    text_checks,
    text_format,
    text_parts,
    time_attributes,
    type_functions,
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
