"""Decoding of messages in source readers: many at once, with handling of malformed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.output_tag import OutputTag
from penstock.codecs.messages import BadMessage, Deserialized, OnError
from penstock.codecs.serialization import DeserializationSchema
from penstock.core.connector import SourceReaderContext
from penstock.core.records import Batch
from penstock.formats.errors import MalformedMessageError

#: The metric for malformed messages that were skipped.
MALFORMED_COUNTER: Final = "malformed_records"

#: Locates a decoded message by index: its split (for Kafka, topic and partition), and its position there.
Locate = Callable[[int], tuple[str, int]]


def decode_messages(
    schema: DeserializationSchema[Any],
    messages: Sequence[bytes],
    locate: Locate,
    context: SourceReaderContext,
) -> Deserialized:
    """Decode messages, leaving out malformed ones.

    Raises:
        MalformedMessageError: for the first malformed message, unless the schema skips them.
    """
    deserialized = schema.deserialize_batch(messages)
    if deserialized.bad:
        refuse_or_skip(deserialized.bad, messages, locate, context, schema.on_error, schema.malformed_output)
    return deserialized


def refuse_or_skip(
    bad: Sequence[BadMessage],
    messages: Sequence[bytes],
    locate: Locate,
    context: SourceReaderContext,
    on_error: OnError,
    output: OutputTag | None = None,
) -> None:
    """Fail for the first malformed message; with `skip` count all, and send them to the side output, if any.

    Raises:
        MalformedMessageError: unless malformed messages are skipped.
    """
    if on_error == "fail":
        first = bad[0]
        raise MalformedMessageError(*locate(first.place), first.reason, messages[first.place]) from first.cause
    context.count(MALFORMED_COUNTER, len(bad))
    if output is not None:
        rows = [(*locate(message.place), message.reason, bytes(messages[message.place])) for message in bad]
        context.collect_side(output.tag_id, Batch(rows))
