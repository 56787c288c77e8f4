"""Helpers that connectors share: delivery guarantees, optional libraries, decoding of messages, and changes by key.

`require` imports an optional dependency on use; its error says how to install it. `decode_messages` decodes many
messages at once and handles malformed ones. `last_of_each` finds the last change of each key, and `has_key` the rows of
a table that have one of the keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigurationError, write_install_command
from penstock.base.output_tag import OutputTag
from penstock.base.types import RowKind
from penstock.codecs.serialization import BadMessage, DeserializationSchema, Deserialized, OnError
from penstock.formats.file_format import MalformedMessageError
from penstock.runtime.connector import SourceReaderContext
from penstock.runtime.records import Batch


class DeliveryGuarantee(Enum):
    """How often a sink delivers each record if a failure occurs.

    Examples:
        >>> from penstock.datastream.connectors import DeliveryGuarantee
        >>> [guarantee.name for guarantee in DeliveryGuarantee]
        ['EXACTLY_ONCE', 'AT_LEAST_ONCE', 'NONE']
    """

    EXACTLY_ONCE = 0
    """Once."""

    AT_LEAST_ONCE = 1
    """Once or more often."""

    NONE = 2
    """Perhaps not at all, perhaps more often."""


def require(module: str, user: str, library: str, extra: str) -> None:
    """Check that a library is installed by importing one of its modules.

    `user` is the feature that needs it, for the error.

    Raises:
        ConfigurationError: if it is not installed; the message says how to install it.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{user} needs the library {library}, here and on every worker: {write_install_command(extra)}"
        ) from error


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


_PLACE: Final = "__penstock_place"


def is_gone(kinds: Any) -> Any:
    """Return which rows are deleted, given an array of their row kinds.

    The UPDATE_BEFORE of an update is the last change of its key if the UPDATE_AFTER has another key.
    """
    return (kinds == RowKind.DELETE.value) | (kinds == RowKind.UPDATE_BEFORE.value)


def last_of_each(changes: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the positions of the last row of each key, in ascending order."""
    numbered = changes.select(list(key)).append_column(_PLACE, pa.array(np.arange(changes.num_rows)))
    last = numbered.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return pa.array(np.sort(last.to_numpy()))


def has_key(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Return for each row whether its key is among `keys`. Column types must match; NULL is a key like any other."""
    names = keys.schema.names
    if len(names) == 1:
        matches = pc.is_in(rows.column(names[0]), value_set=keys.column(0).combine_chunks(), skip_nulls=False)
        return matches.combine_chunks() if isinstance(matches, pa.ChunkedArray) else matches
    # Group both tables together, the keys first: a row matches if its group contains a key.
    both = pa.concat_tables([keys, rows.select(names)], promote_options="permissive")
    numbered = both.append_column(_PLACE, pa.array(np.arange(both.num_rows)))
    grouped = numbered.group_by(names).aggregate([(_PLACE, "min"), (_PLACE, "list")])
    is_key = grouped.column(f"{_PLACE}_min").to_numpy() < keys.num_rows
    positions = pc.list_flatten(grouped.filter(pa.array(is_key)).column(f"{_PLACE}_list")).to_numpy()
    mask = np.zeros(both.num_rows, np.bool_)
    mask[positions] = True
    return pa.array(mask[keys.num_rows :])
