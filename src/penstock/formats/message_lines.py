"""Files whose lines are messages, so that one codec reads both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.codecs.messages import Deserialized
from penstock.formats.stream_format import DecodedBlock, LineDecoder, Malformed, split_lines


class MessageLinesDecoder(LineDecoder[Any]):
    """Reads lines with a decoder of messages.

    Args:
        decode: decodes many messages to records.
        skips_empty: whether to skip lines of white space alone.
    """

    def __init__(self, decode: Callable[[Sequence[bytes]], Deserialized], skips_empty: bool = True) -> None:
        self._decode = decode
        self._skips_empty = skips_empty

    def decode(self, block: bytes, last: bool) -> DecodedBlock:
        """See `LineDecoder`."""
        lines = split_lines(block)
        line_indexes = (
            [index for index, line in enumerate(lines) if line.strip()] if self._skips_empty else range(len(lines))
        )
        decoded = self._decode(lines if len(line_indexes) == len(lines) else [lines[index] for index in line_indexes])
        bad = [
            Malformed(
                line_indexes[error.place], error.reason, lines[line_indexes[error.place]].decode("utf-8", "replace")
            )
            for error in decoded.bad
        ]
        return DecodedBlock(decoded.values, bad, len(block), decoded.kinds)

    def decode_lines(self, block: bytes) -> list[Any]:
        """See `LineDecoder`."""
        return list(self.decode(block, True).values)

    def decode_line(self, line: bytes) -> Any:
        """See `LineDecoder`."""
        return self.decode_lines(line)[0]
