"""The interface of table connectors: they read and write a table according to its options.

The options of one table, parsed as a connector declares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, ClassVar, Final, TypeVar

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.functions.value_casts import supports_cast
from penstock.sql.logical.nodes import Scan, Write
from penstock.sql.tables.lookup import TableLookup, held_lookup, holds_all, without_holding
from penstock.sql.tables.tables import TableReader, TableScan, TableWriter, WholeScan

T = TypeVar("T")

CONNECTOR: Final = ConfigOptions.key("connector").string_type().no_default_value()
FORMAT: Final = (
    ConfigOptions.key("format")
    .string_type()
    .no_default_value()
    .with_description("The format of rows; its own options are prefixed with its name, such as `csv.`.")
)


class TableOptions(Mapping[str, str]):
    """The options of a table as text, which `read` converts to typed values.

    Args:
        title: the table's name in error messages.
        values: the options by key.
        prefix: the prefix of each key; for a format, its name and a dot.
        zone: the session time zone.
    """

    def __init__(self, title: str, values: Mapping[str, str], prefix: str = "", zone: tzinfo = UTC) -> None:
        self.title = title
        self.zone = zone
        self._values = dict(values)
        remember(values)
        self._prefix = prefix

    def __getitem__(self, key: str) -> str:
        return self._values[self._prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(self._prefix) for key in self._values if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def read(self, option: ConfigOption[T]) -> T:
        """Return the value of an option: durations in ms, memory sizes in bytes.

        Raises:
            ValidationError: if the value is invalid; it names the table, the option and the value.
        """
        text = self.get(option.key())
        if text is None:
            return option.default_value()
        try:
            return option.convert(text)
        except ConfigurationError as error:
            raise ValidationError(f"Invalid option of table {self.title}: {self._named(error, option)}") from error

    def required(self, option: ConfigOption[T | None]) -> T:
        """Return the value of a required option; raise `ValidationError` if it is missing."""
        value = self.read(option)
        if value is None:
            raise missing(self.title, [self._prefix + option.key()])
        return value

    def below(self, prefix: str) -> TableOptions:
        """Return the options whose keys begin with a prefix, without the prefix."""
        return TableOptions(self.title, self._values, self._prefix + prefix, self.zone)

    def wrong(self, key: str, reason: str) -> ValidationError:
        """Return the error for an option with an invalid value."""
        return ValidationError(f"Invalid value for option '{self._prefix}{key}' of table {self.title}: {reason}")

    def _named(self, error: ConfigurationError, option: ConfigOption[Any]) -> str:
        return str(error).replace(f"option {option.key()} ", f"option {self._prefix}{option.key()} ", 1)


def missing(title: str, keys: Sequence[str]) -> ValidationError:
    """Return the error for missing required options."""
    return ValidationError(
        f"One or more required options are missing for table {title}. Missing required options are: {', '.join(keys)}"
    )


class TableConnector:
    """Base class of table connectors. A connector that only reads or only writes leaves out the other methods.

    A simple source implements `reader`, a source with abilities `scan`, a sink `writer`, and a connector that looks up
    rows by key `lookup`.
    """

    #: the value of the option `connector`
    name: ClassVar[str]
    #: the required options of a table, besides `connector`
    required_options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: the optional options of a table
    optional_options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: whether a table may be PARTITIONED BY columns
    takes_partitions: ClassVar[bool] = False
    #: whether a batch job may replace the contents of a table with INSERT OVERWRITE
    takes_overwrites: ClassVar[bool] = False

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader of a table."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a sink. It cannot be used as a source: "
            f"table {'.'.join(scan.path)}"
        )

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan of a table, which the planner may modify (see `tables`); by default it cannot."""
        return WholeScan(self.reader(scan, options))

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the lookup of rows by key. `key`: the positions of the key columns in the table."""
        raise ValidationError(
            "Processing-time temporal join is not supported yet. "
            f"Connector '{self.name}' cannot be asked for the rows of keys, so table {'.'.join(scan.path)} cannot be "
            "joined FOR SYSTEM_TIME AS OF a processing time: use a connector that has a look-up"
        )

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer of a table."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a source. It cannot be used as a sink: "
            f"table {'.'.join(write.path)}"
        )

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the METADATA columns that a source provides, by key."""
        return {}

    def writable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the METADATA columns that a sink accepts, by key."""
        return {}

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the option keys that depend on other options or on column names, such as those of a format."""
        return ()

    def check(self, options: TableOptions, columns: Sequence[str]) -> None:
        """Reject unsupported options, and tables that lack required ones."""
        declared = [*self.required_options, *self.optional_options]
        known = {CONNECTOR.key(), *(option.key() for option in declared), *self.more_options(options, columns)}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise ValidationError(
                f"Unsupported options found for '{self.name}' of table {options.title}: {', '.join(unknown)}. "
                f"Supported options: {', '.join(sorted(known))}"
            )
        absent = [option.key() for option in self.required_options if option.key() not in options]
        if absent:
            raise missing(options.title, absent)
        for option in declared:
            options.read(option)


class Connectors:
    """Connectors by name."""

    def __init__(self, *connectors: TableConnector) -> None:
        self._connectors = {connector.name: connector for connector in connectors}

    def names(self) -> list[str]:
        """Return the possible values of the option `connector`."""
        return sorted(self._connectors)

    def find(self, name: str) -> TableConnector | None:
        """Return the connector with this name."""
        return self._connectors.get(name)

    def scan(self, node: Scan) -> TableScan:
        """Return the scan of a table. Raises `ValidationError` for options that no connector supports."""
        if isinstance(node.source, TableScan):
            return node.source
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.readable_metadata(options), is_read=True)
        return connector.scan(node, options)

    def reader(self, node: Scan) -> TableReader:
        """Return the reader of a table. Raises `ValidationError` for options that no connector supports."""
        scan = self.scan(node)
        scan.check()
        return scan.reader()

    def lookup(self, node: Scan, key: Sequence[int]) -> TableLookup:
        """Return the lookup of rows by key. Raises `ValidationError` if the connector does not support lookups."""
        if holds_all(dict(node.options)):
            return held_lookup(self.reader(node), node, key)
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.readable_metadata(options), is_read=True)
        return connector.lookup(node, key, options)

    def writer(self, node: Write) -> TableWriter:
        """Return the writer of a table. Raises `ValidationError` for options that no connector supports."""
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.writable_metadata(options), is_read=False)
        return connector.writer(node, options)

    def check_overwrites(self, node: Write) -> None:
        """Raise `UnsupportedError` unless a batch job may replace the contents of the table."""
        options = TableOptions(".".join(node.path), without_holding(dict(node.options)))
        connector = self._find(options)
        if not connector.takes_overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE is not supported by connector '{connector.name}': table {options.title}. Remove its "
                "rows first"
            )

    def _checked(self, node: Scan | Write) -> tuple[TableConnector, TableOptions]:
        options = TableOptions(".".join(node.path), without_holding(dict(node.options)), zone=node.zone)
        connector = self._find(options)
        connector.check(options, node.schema.names)
        if node.partition_keys and not connector.takes_partitions:
            raise ValidationError(
                f"Table {options.title} is partitioned, but connector '{connector.name}' has no partitions: leave out "
                "PARTITIONED BY"
            )
        return connector, options

    def _find(self, options: TableOptions) -> TableConnector:
        name = options.read(CONNECTOR)
        known = ", ".join(self.names())
        if name is None:
            raise ValidationError(
                f"Table options of {options.title} do not contain an option key 'connector' for discovering a "
                f"connector. Set it in WITH; there are {known}"
            )
        if name not in self._connectors:
            raise ValidationError(f"Could not find any connector '{name}' for table {options.title}: there are {known}")
        return self._connectors[name]


def _check_metadata(title: str, node: Scan | Write, known: Mapping[str, DataType], *, is_read: bool) -> None:
    for index, key in node.metadata:
        column = node.schema[index]
        if key not in known:
            available = ", ".join(sorted(known)) or "none"
            raise ValidationError(
                f"Invalid metadata key '{key}' in column '{column.name}' of table {title}. The connector "
                f"{'reads' if is_read else 'writes'} these metadata keys: {available}"
            )
        pair = (known[key], column.type) if is_read else (column.type, known[key])
        if not supports_cast(*pair):
            raise ValidationError(
                f"Invalid data type for metadata column '{column.name}' of table {title}. The column cannot be "
                f"declared as '{column.type}' because the type must be castable {'from' if is_read else 'to'} metadata "
                f"type '{known[key]}'."
            )
