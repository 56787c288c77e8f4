"""What handlers give back besides values that become JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

#: As Flink says it.
JSON_TYPE = "application/json; charset=UTF-8"
TEXT_TYPE = "text/plain; charset=UTF-8"
HTML_TYPE = "text/html; charset=UTF-8"


class Empty(msgspec.Struct, frozen=True):
    """An answer that has nothing to say: `{}`."""


@dataclass(frozen=True)
class Text:
    """A file as text."""

    text: str


class Html:
    """A page of a form; its handler makes the answer itself."""


@dataclass(frozen=True)
class Encoded:
    """JSON that was made before, for the same view of the same job."""

    body: bytes


@dataclass(frozen=True)
class Answer:
    """Bytes as they go out; `asker` is who has just logged in."""

    code: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)
    asker: str | None = None


_encoder = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    """A value as JSON; what is not a number is the string "NaN" by then (`shapes.numbers`)."""
    return _encoder.encode(value)


def answer_of(code: int, value: Any) -> Answer:
    """What a handler gave back, as bytes."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, Text):
        return Answer(code, value.text.encode("utf-8", "replace"), TEXT_TYPE)
    if isinstance(value, Encoded):
        return Answer(code, value.body)
    return Answer(code, encoded(value))


def error_answer(code: int, message: str) -> Answer:
    """A refusal in Flink's form."""
    return Answer(code, encoded({"errors": [message]}))
