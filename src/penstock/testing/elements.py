"""The inputs and outputs of an operator under test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.runtime.records import Watermark


@dataclass(frozen=True, repr=False)
class Record:
    """A value with its event time in ms, or None."""

    value: Any
    timestamp: int | None = None

    def __repr__(self) -> str:
        return f"Record({self.value!r})" if self.timestamp is None else f"Record({self.value!r}, {self.timestamp})"


@dataclass(frozen=True)
class ProcessingTime:
    """Advances the clock by this many ms."""

    by_ms: int


Element: TypeAlias = Record | Watermark | ProcessingTime
