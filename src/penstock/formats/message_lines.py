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
        kept = [place for place, line in enumerate(lines) if line.strip()] if self._skips_empty else range(len(lines))
        found = self._decode(lines if len(kept) == len(lines) else [lines[place] for place in kept])
        bad = [
            Malformed(kept[one.place], one.reason, lines[kept[one.place]].decode("utf-8", "replace"))
            for one in found.bad
        ]
        return DecodedBlock(found.values, bad, len(block), found.kinds)

    def decode_lines(self, block: bytes) -> list[Any]:
        """See `LineDecoder`."""
        return list(self.decode(block, True).values)

    def decode_line(self, line: bytes) -> Any:
        """See `LineDecoder`."""
        return self.decode_lines(line)[0]
