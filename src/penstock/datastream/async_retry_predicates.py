"""Reasons to repeat an asynchronous call, for the strategies of `async_retry_strategies`."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any]) -> bool:
    """Return whether the results are empty."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """Return whether there is an exception of any type."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Return whether the exception is of a type; bind that type first, for example with `functools.partial`."""
    return isinstance(error, expected_error_type)
