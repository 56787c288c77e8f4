"""Errors for rejected patterns."""

from __future__ import annotations

from penstock.base.errors import UnsupportedError, WrongValueError


class MalformedPatternException(WrongValueError):
    """The parts of a pattern do not fit together."""


class UnsupportedOperationError(UnsupportedError):
    """The pattern is meaningful, but neither Flink nor Penstock supports it."""
