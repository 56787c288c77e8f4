"""What a source reader does with messages: decode many at once, and see to those that are not in the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.output_tag import OutputTag
from penstock.codecs.messages import BadMessage, Deserialized, OnError
from penstock.codecs.serialization import DeserializationSchema
from penstock.core.connector import SourceReaderContext
from penstock.core.records import Batch
from penstock.formats.errors import MalformedMessageError

#: The metric of messages that were left out because they are not in the format.
MALFORMED_COUNTER: Final = "malformed_records"

#: For the place of a message among those decoded: its split (of Kafka, topic and partition), and its position there.
Locate = Callable[[int], tuple[str, int]]


def decode_messages(
    schema: DeserializationSchema[Any],
    messages: Sequence[bytes],
    locate: Locate,
    context: SourceReaderContext,
) -> Deserialized:
    """The records of messages, with no bad one among them.

    Raises:
        MalformedMessageError: for the first message that is not in the format, unless the schema skips such messages.
    """
    found = schema.deserialize_batch(messages)
    if found.bad:
        refuse_or_skip(found.bad, messages, locate, context, schema.on_error, schema.malformed_output)
    return found


def refuse_or_skip(
    bad: Sequence[BadMessage],
    messages: Sequence[bytes],
    locate: Locate,
    context: SourceReaderContext,
    on_error: OnError,
    output: OutputTag | None = None,
) -> None:
    """Fails for the first bad message; with `skip` counts them all, and sends them to the side output if there is one.

    Raises:
        MalformedMessageError: unless bad messages are skipped.
    """
    if on_error == "fail":
        first = bad[0]
        raise MalformedMessageError(*locate(first.place), first.reason, messages[first.place]) from first.cause
    context.count(MALFORMED_COUNTER, len(bad))
    if output is not None:
        rows = [(*locate(one.place), one.reason, bytes(messages[one.place])) for one in bad]
        context.collect_side(output.tag_id, Batch(rows))
