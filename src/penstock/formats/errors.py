"""Errors for malformed records, with enough detail to find the line."""

from __future__ import annotations

from penstock.base.errors import FormatError, shorten

EXCERPT_CHARS_MAX = 200


class MalformedRecordError(FormatError):
    """A line of a file could not be read as a record of the declared format.

    Attributes:
        file: the file's path or URL.
        line: the line on which the record begins, counted from 1.
        reason: why it is malformed.
        excerpt: the record's text, truncated to 200 characters.
    """

    def __init__(self, file: str, line: int, reason: str, excerpt: str) -> None:
        super().__init__(file, line, reason, excerpt)
        self.file = file
        self.line = line
        self.reason = reason
        self.excerpt = shorten(excerpt, EXCERPT_CHARS_MAX)

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}: {self.excerpt!r}"

    def __reduce__(self) -> tuple[type[MalformedRecordError], tuple[str, int, str, str]]:
        return type(self), (self.file, self.line, self.reason, self.excerpt)


class MalformedMessageError(FormatError):
    """A message could not be read as a record of the declared format.

    Attributes:
        split: the origin of the message; for Kafka topic and partition, as in `orders-3`.
        position: its position there; for Kafka the offset.
        reason: why it is malformed.
        excerpt: the beginning of its bytes.
    """

    def __init__(self, split: str, position: int, reason: str, message: bytes) -> None:
        self.excerpt = bytes(message[:EXCERPT_CHARS_MAX])
        super().__init__(split, position, reason, self.excerpt)
        self.split = split
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.split}, offset {self.position}: {self.reason}: {self.excerpt!r}"

    def __reduce__(self) -> tuple[type[MalformedMessageError], tuple[str, int, str, bytes]]:
        return type(self), (self.split, self.position, self.reason, self.excerpt)
