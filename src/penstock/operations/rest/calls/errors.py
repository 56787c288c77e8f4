"""Errors of requests, with Flink's status codes and its form `{"errors": [...]}`."""

from __future__ import annotations


class RestError(Exception):
    """A request that fails with an HTTP error.

    Args:
        code: the HTTP status, such as 404.
        message: a readable explanation.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bad_request(message: str) -> RestError:
    """Return a 400: the request itself is wrong."""
    return RestError(400, message)


def not_found(message: str) -> RestError:
    """Return a 404: the requested thing does not exist."""
    return RestError(404, message)
