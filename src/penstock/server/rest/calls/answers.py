"""Results of handlers, other than values that become JSON.

Errors of requests, with Flink's status codes and its form `{"errors": [...]}`.

Numbers in Flink's JSON: distributions of durations and sizes, and NaN as a string.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

#: The content types that Flink sends.
JSON_TYPE = "application/json; charset=UTF-8"
TEXT_TYPE = "text/plain; charset=UTF-8"
HTML_TYPE = "text/html; charset=UTF-8"


class Empty(msgspec.Struct, frozen=True):
    """An empty answer: `{}`."""


@dataclass(frozen=True)
class Text:
    """A file as plain text."""

    text: str


class Html:
    """A page with a form; its handler builds the answer itself."""


@dataclass(frozen=True)
class Encoded:
    """JSON that was encoded earlier for the same view of the same job."""

    body: bytes


@dataclass(frozen=True)
class Answer:
    """The response as bytes; `asker` is the role that just logged in."""

    code: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)
    asker: str | None = None


_encoder = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    """Encode a value as JSON. NaN must already be the string "NaN" (`shapes.numbers`)."""
    return _encoder.encode(value)


def build_answer(code: int, value: Any) -> Answer:
    """Convert a handler's result to a response."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, Text):
        return Answer(code, value.text.encode("utf-8", "replace"), TEXT_TYPE)
    if isinstance(value, Encoded):
        return Answer(code, value.body)
    return Answer(code, encoded(value))


def error_answer(code: int, message: str) -> Answer:
    """Build an error response in Flink's form."""
    return Answer(code, encoded({"errors": [message]}))


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


#: A number, or the string for NaN.
Number: TypeAlias = float | Literal["NaN"]


class Summary(msgspec.Struct, frozen=True):
    """The distribution of durations or sizes of checkpoints or rescales."""

    min: int
    max: int
    avg: int
    p50: Number
    p90: Number
    p95: Number
    p99: Number
    p999: Number


class Spread(msgspec.Struct, frozen=True):
    """The distribution of a metric over subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


def percentile(ordered: Sequence[int], part: float) -> float:
    """Return a percentile, interpolated between neighbours as Commons Math does by default."""
    position = part * (len(ordered) + 1)
    if position < 1:
        return float(ordered[0])
    if position >= len(ordered):
        return float(ordered[-1])
    below = math.floor(position)
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (position - below) * (upper - lower)


def summary(values: Sequence[int]) -> Summary:
    """Summarize any number of values; percentiles of no values are NaN."""
    if not values:
        return Summary(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
    ordered = sorted(values)
    parts = (percentile(ordered, part) for part in (0.5, 0.9, 0.95, 0.99, 0.999))
    return Summary(ordered[0], ordered[-1], sum(ordered) // len(ordered), *parts)


def spread(values: Sequence[int]) -> Spread:
    """Summarize the values of some subtasks; all zeros without values."""
    if not values:
        return Spread(0, 0, 0, 0, 0, 0, 0, 0)
    ordered = sorted(values)
    median, p25, p75, p95 = (round(percentile(ordered, part)) for part in (0.5, 0.25, 0.75, 0.95))
    return Spread(ordered[0], ordered[-1], sum(ordered) // len(ordered), sum(ordered), median, p25, p75, p95)


def number(value: float) -> Number:
    """Convert a number for JSON: NaN and infinities become "NaN"."""
    return value if math.isfinite(value) else "NaN"
