"""Functions at the end of a JSON path, such as `.length()` and `.sum()`."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from penstock.table.functions.json_documents import scalar_text
from penstock.table.functions.json_path import JsonPathError


def _numbers(value: Any) -> list[float]:
    parts = value if isinstance(value, list) else [value]
    numbers = [float(part) for part in parts if isinstance(part, int | float | Decimal) and not isinstance(part, bool)]
    if not numbers:
        raise JsonPathError("Aggregation function attempted to calculate value using empty array")
    return numbers


def _deviation(value: Any) -> float:
    numbers = _numbers(value)
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


def _average(value: Any) -> float:
    numbers = _numbers(value)
    return sum(numbers) / len(numbers)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict | str) else None


def _keys(value: Any) -> list[str] | None:
    return list(value) if isinstance(value, dict) else None


def _concat(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return "".join(scalar_text(part) for part in parts if part is not None and not isinstance(part, dict | list))


def _get_element(value: Any, index: int) -> Any:
    if not isinstance(value, list):
        raise JsonPathError("Aggregation function attempted to calculate value using empty array")
    if not -len(value) <= index < len(value):
        raise JsonPathError(f"Target index:{index} larger than object count:{len(value)}")
    return value[index]


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "length": _length,
    "size": _length,
    "keys": _keys,
    "min": lambda value: min(_numbers(value)),
    "max": lambda value: max(_numbers(value)),
    "sum": lambda value: sum(_numbers(value)),
    "avg": _average,
    "stddev": _deviation,
    "concat": _concat,
    "first": lambda value: _get_element(value, 0),
    "last": lambda value: _get_element(value, -1),
}


def path_function(name: str, argument: str) -> Callable[[Any], Any]:
    """Return a function by name. Raises `JsonPathError` if it does not exist."""
    if name == "index" and argument.strip().lstrip("-").isdigit():
        return lambda value: _get_element(value, int(argument))
    function = _FUNCTIONS.get(name)
    if function is None or argument.strip():
        raise JsonPathError(f"Function with name: {name} does not exist.")
    return function
