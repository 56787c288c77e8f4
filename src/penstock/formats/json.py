"""JSON lines (one JSON value a line), and files whose lines are messages, so that one codec reads both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import msgspec

from penstock.base.errors import FormatError, shorten
from penstock.base.output_tag import OutputTag
from penstock.base.time import Instant
from penstock.base.types import Row
from penstock.codecs.serialization import DeserializationSchema, Deserialized, Encoder, OnError
from penstock.formats.file_format import NO_RECORD, DecodedBlock, LineDecoder, Malformed, StreamFormat, split_lines


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


class JsonLinesFormat(StreamFormat[Any]):
    """Reads JSON lines: each line becomes a Python value (usually a `dict`). Empty lines are not records.

    Args:
        schema: makes the records instead, for instance a `JsonRowDeserializationSchema` for typed rows; lines that it
            returns None for are not records.
        on_error: see `StreamFormat`. A line is malformed if it is not one JSON value in UTF-8. `NaN` and `Infinity` are
            not JSON.
        malformed_output: see `StreamFormat`.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.json import JsonLinesFormat
        >>> _ = Path("orders").write_text('{"drink": "tea", "cups": 2}')
        >>> source = FileSource.for_record_stream_format(JsonLinesFormat(), "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [{'drink': 'tea', 'cups': 2}]
    """

    def __init__(
        self,
        schema: DeserializationSchema[Any] | None = None,
        *,
        on_error: OnError = "fail",
        malformed_output: OutputTag | None = None,
    ) -> None:
        super().__init__(on_error, malformed_output)
        self.schema = schema

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        return _JsonDecoder() if self.schema is None else MessageLinesDecoder(self.schema.deserialize_batch)


class _JsonDecoder(LineDecoder[Any]):
    def __init__(self) -> None:
        self._parse: Callable[[bytes], Any] = msgspec.json.Decoder().decode

    def decode_lines(self, block: bytes) -> list[Any]:
        return list(map(self._parse, filter(None, split_lines(block))))

    def decode_line(self, line: bytes) -> Any:
        return self._parse(line) if line.strip() else NO_RECORD


class JsonLinesEncoder(Encoder[Any]):
    """Writes each record as one line of JSON, for `FileSink.for_row_format`.

    Accepts JSON's own types, and dataclasses, named tuples, dates, decimals and UUIDs. A `Row` with names becomes an
    object, a `Row` without names an array.

    Examples:
        >>> import io
        >>> from penstock.datastream.formats.json import JsonLinesEncoder
        >>> file = io.BytesIO()
        >>> JsonLinesEncoder().encode({"drink": "tea", "cups": 2}, file)
        >>> file.getvalue().decode().splitlines()
        ['{"drink":"tea","cups":2}']
    """

    def __init__(self) -> None:
        super().__init__(_encode_line)

    def encode_batch(self, values: Sequence[Any]) -> bytes:
        """Encode many records as lines.

        Raises:
            FormatError: if a record cannot be written as JSON; it shows the record.
        """
        try:
            return _LINES.encode_lines(values)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return b"".join(map(_encode_line, values))

    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Write a record at the stream's position."""
        stream.write(_encode_line(element))

    def __reduce__(self) -> tuple[type[JsonLinesEncoder], tuple[()]]:
        return type(self), ()


def _plain(value: Any) -> Any:
    """Convert a value that msgspec does not support to one that it does."""
    if isinstance(value, Row):
        return value.as_dict() if value._fields is not None else list(value)
    if isinstance(value, Instant):
        return value.to_epoch_milli()
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


_LINES = msgspec.json.Encoder(enc_hook=_plain)


def _encode_line(value: Any) -> bytes:
    try:
        return _LINES.encode(value) + b"\n"
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise FormatError(f"cannot write {shorten(repr(value))} as JSON: {error}") from error
