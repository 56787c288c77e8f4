"""Results of handlers, other than values that become JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
