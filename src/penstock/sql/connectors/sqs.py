"""`sqs`: writes rows as messages of a queue of SQS.

Flink has no table connector for SQS; the options are named as in its other AWS connectors. Messages to a FIFO queue
have the group of their PARTITIONED BY columns, and the hash of their content as deduplication id. So a row that is sent
again within five minutes arrives once, and so does a row that equals another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from penstock.connectors.aws import sqs
from penstock.connectors.aws.sqs import SqsMessage, SqsSink
from penstock.sql.connectors import aws
from penstock.sql.connectors.opensearch import show_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import Formats, MessageEncoder
from penstock.sql.logical.nodes import INSERTS, Write
from penstock.sql.tables.connector import FORMAT, TableConnector, TableOptions
from penstock.sql.tables.tables import TableWriter

URL: Final = aws.text_option("queue-url", "The URL of the queue; that of a FIFO queue ends in `.fifo`.")
_GROUP_CHARS_MAX: Final = 128


@dataclass(frozen=True)
class Messages:
    """Makes messages of rows.

    Attributes:
        encoder: makes their bodies.
        names: the columns of the table.
        group: the positions and types of the columns of a group; None for a queue that is not FIFO.
    """

    encoder: MessageEncoder
    names: tuple[str, ...]
    group: tuple[tuple[int, DataType], ...] | None

    def __call__(self, columns: pa.RecordBatch, kinds: bytes | None) -> list[SqsMessage]:
        """Return the messages of rows. Raises `TableRuntimeError` for a message that is not text."""
        encoded = aws.encode_rows(self.encoder, self.names, columns, kinds)
        try:
            bodies = [message.decode() for message in encoded]
        except UnicodeDecodeError as error:
            raise TableRuntimeError(f"a row is no text, which messages of SQS are: {error}") from error
        if self.group is None:
            return list(map(SqsMessage, bodies))
        parts = [show_values(columns.column(index), kind) for index, kind in self.group]
        groups = ["|".join(values)[:_GROUP_CHARS_MAX] for values in zip(*parts, strict=True)] or ["all"] * len(bodies)
        if "" in groups:
            raise TableRuntimeError("a row has an empty group, and SQS allows none: see the columns of PARTITIONED BY")
        ids = [hashlib.sha256(message).hexdigest() for message in encoded]
        return list(map(SqsMessage, bodies, groups, ids))


def _keep(message: SqsMessage) -> SqsMessage:
    return message


class SqsConnector(TableConnector):
    """See the module docstring. `formats`: the formats that `format` may name."""

    name = "sqs"
    required_options = (URL, aws.REGION, FORMAT)
    optional_options = (
        *aws.AWS_OPTIONS,
        aws.batch_option(sqs.SETTINGS.max_batch_size),
        aws.size_option(sqs.SETTINGS.max_batch_size_in_bytes),
        *aws.SINK_OPTIONS,
    )
    takes_partitions: ClassVar = True

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer for the changes that the format can encode."""
        encoder, accepts = aws.build_encoder(write, options, self._formats)
        url, names = options.required(URL), write.schema.names
        group = tuple((names.index(name), write.schema[names.index(name)].type) for name in write.partition_keys)
        is_fifo = url.endswith(".fifo")
        if group and not is_fifo:
            raise ValidationError(
                f"Table {options.title} is partitioned, but only a FIFO queue has groups: leave out PARTITIONED BY"
            )
        inner = SqsSink(
            aws.read_aws(options),
            url,
            _keep,
            options.read(aws.FAIL_ON_ERROR),
            aws.read_limits(options, sqs.SETTINGS, sqs.MESSAGES_MAX),
        )
        sink = aws.MessagesSink(inner, write.schema, Messages(encoder, tuple(names), group if is_fifo else None))
        return TableWriter(sink, accepts, takes_columns=True, follows_query=accepts != INSERTS)
