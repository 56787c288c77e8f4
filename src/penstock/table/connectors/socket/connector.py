"""The `socket` connector: rows that a server sends as text. For experiments only: a socket cannot replay its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.socket_text import SocketTextSource
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.formats.format import Formats
from penstock.table.connectors.formats.messages import MessagesSource
from penstock.table.connectors.table_options import FORMAT, TableOptions
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.logical import Scan

HOSTNAME: Final = (
    ConfigOptions.key("hostname").string_type().no_default_value().with_description("The host name of the server.")
)
PORT: Final = ConfigOptions.key("port").int_type().no_default_value().with_description("The port of the server.")
DELIMITER: Final = (
    ConfigOptions.key("byte-delimiter")
    .int_type()
    .default_value(10)
    .with_description("The byte that separates rows, as a number.")
)
RETRIES: Final = (
    ConfigOptions.key("max-retries")
    .int_type()
    .default_value(0)
    .with_description("The maximum number of reconnections, one per second; no limit if negative.")
)
_ASCII: Final = 128


class SocketConnector(TableConnector):
    """See the module docstring. `formats`: the formats that the option `format` may name."""

    name = "socket"
    required_options = (HOSTNAME, PORT, FORMAT)
    optional_options = (DELIMITER, RETRIES)

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of the format."""
        table_format, of_format = self._formats.find(options)
        return table_format.readable_metadata(of_format)

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for formats that support files only."""
        table_format, of_format = self._formats.find(options)
        decoding = table_format.decoding_with_metadata(
            scan.schema, range(len(scan.schema)), of_format, dict(scan.metadata)
        )
        if decoding.messages is None:
            raise ValidationError(
                f"Format '{table_format.name}' has only files: table {options.title} needs csv, json or raw"
            )
        byte = options.read(DELIMITER)
        if not 0 <= byte < _ASCII:
            raise options.wrong(DELIMITER.key(), f"it must be from 0 to {_ASCII - 1}, not {byte}")
        hostname, port = options.required(HOSTNAME), options.required(PORT)
        try:
            inner = SocketTextSource(hostname, port, chr(byte), options.read(RETRIES))
        except ConfigurationError as error:
            raise options.wrong(PORT.key(), str(error)) from error
        name = f"{hostname}:{port}"
        source = MessagesSource(inner, decoding.messages, name, skips_bad=decoding.skips_bad)
        return TableReader(source, decoding.changes, has_before=decoding.changes != INSERTS)
