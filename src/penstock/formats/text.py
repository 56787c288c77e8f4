"""Text: each line is a record."""

from __future__ import annotations

from penstock.common.output_tag import OutputTag
from penstock.formats.stream_format import LineDecoder, OnError, StreamFormat, check_charset, unify_line_ends


class TextLineFormat(StreamFormat[str]):
    """Each line is a record, a `str` without its end; empty lines are records too.

    Args:
        charset: how the text is encoded; one that extends ASCII.
        on_error: see `StreamFormat`; a line is malformed when its bytes are not of that charset.
        malformed_output: see `StreamFormat`.

    Raises:
        ConfigurationError: if the charset is unknown or writes line feeds in another way than ASCII.
    """

    def __init__(
        self, charset: str = "utf-8", on_error: OnError = "fail", malformed_output: OutputTag | None = None
    ) -> None:
        super().__init__(on_error, malformed_output)
        self.charset = check_charset(charset)

    def create_decoder(self, header: bytes) -> LineDecoder[str]:
        return _TextLineDecoder(self.charset)


class _TextLineDecoder(LineDecoder[str]):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    def decode_lines(self, block: bytes) -> list[str]:
        lines = unify_line_ends(block).decode(self._charset).split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def decode_line(self, line: bytes) -> str:
        return line.decode(self._charset)
