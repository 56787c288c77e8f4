"""Reasons to repeat an asynchronous call, for the strategies of `async_retry_strategies`."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any]) -> bool:
    """Whether there are no results."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """Whether there is an exception, whatever it is."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether the exception is of a type; bind that type first, for example with `functools.partial`."""
    return isinstance(error, expected_error_type)
