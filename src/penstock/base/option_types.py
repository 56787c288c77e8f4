"""Constructors of options: each option goes into one registry and has a type that rejects invalid values."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.base import value_types
from penstock.base.config_options import ConfigOption
from penstock.base.value_types import DURATION_MS, FLOAT, INTEGER, STRING, ValueType

T = TypeVar("T")

Option = ConfigOption

REGISTRY: dict[str, Option[Any]] = {}
"""All options by key, in the order in which they are made."""


def option(key: str, value_type: ValueType[T], default: T, description: str) -> Option[T]:
    """Create an option."""
    new_option = Option(key, value_type, value_type.convert(default), description)
    REGISTRY[key] = new_option
    return new_option


def unset(key: str, value_type: ValueType[T], description: str) -> Option[T | None]:
    """Create an option that reads as None when it is not set."""
    new_option: Option[T | None] = Option(key, value_type, None, description)
    REGISTRY[key] = new_option
    return new_option


def at_least(low: float, value_type: ValueType[T]) -> ValueType[T]:
    """Return the same type, restricted to values of at least `low`."""

    def convert(value: object) -> T:
        converted: Any = value_type.convert(value)
        if not converted >= low:  # also rejects NaN
            raise ValueError(f"must be at least {low}")
        result: T = converted
        return result

    return ValueType(value_type.name, convert)


COUNT = at_least(0, INTEGER)
POSITIVE = at_least(1, INTEGER)
TIME_MS = at_least(0, DURATION_MS)
POSITIVE_TIME_MS = at_least(1, DURATION_MS)
SIZE_BYTES = at_least(0, value_types.BYTES_COUNT)


def to_max_parallelism(value: object) -> int:
    """Convert to a number of key groups."""
    converted = INTEGER.convert(value)
    if not 1 <= converted <= 32768:
        raise ValueError("must be between 1 and 32768")
    return converted


def to_fraction(value: object) -> float:
    """Convert to a number from 0 to 1, inclusive."""
    converted = FLOAT.convert(value)
    if not 0.0 <= converted <= 1.0:
        raise ValueError("must be between 0 and 1")
    return converted


def to_inner_fraction(value: object) -> float:
    """Convert to a number between 0 and 1, exclusive."""
    converted = FLOAT.convert(value)
    if not 0.0 < converted < 1.0:
        raise ValueError("must be greater than 0 and less than 1")
    return converted


PORTS_RANGE_MAX = 65_535


def to_port(value: object) -> int:
    """Convert to a port number."""
    converted = INTEGER.convert(value)
    if not 0 <= converted <= PORTS_RANGE_MAX:
        raise ValueError("must be between 0 and 65535")
    return converted


def to_ports(value: object) -> str:
    """Convert to a comma-separated list of port numbers and ranges."""
    text = STRING.convert(value)
    for part in text.split(","):
        low, _, high = part.partition("-")
        if to_port(low.strip()) > to_port((high or low).strip()):
            raise ValueError(f"{part} is no range")
    return text


PORT = ValueType("port", to_port)
