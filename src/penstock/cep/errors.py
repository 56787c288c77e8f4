"""What patterns are refused with."""

from __future__ import annotations

from penstock.base.errors import UnsupportedError, WrongValueError


class MalformedPatternException(WrongValueError):
    """The parts of a pattern do not fit together."""


class UnsupportedOperationError(UnsupportedError):
    """The pattern has a meaning, but neither Flink nor Penstock looks for it."""
