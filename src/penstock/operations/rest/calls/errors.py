"""What a request is refused with: Flink's codes, and its form `{"errors": [...]}`."""

from __future__ import annotations


class RestError(Exception):
    """A request that is not answered as it hoped.

    Args:
        code: the HTTP status, such as 404.
        message: what is wrong, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bad_request(message: str) -> RestError:
    """400: the request itself is wrong."""
    return RestError(400, message)


def not_found(message: str) -> RestError:
    """404: there is no such thing."""
    return RestError(404, message)
