"""`TableDescriptor`: a connector table that a program defines, instead of CREATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.base.config_options import ConfigOption, render
from penstock.base.errors import WrongValueError
from penstock.sql.catalogs.catalog import CatalogBaseTable
from penstock.sql.catalogs.columns import Schema
from penstock.sql.data.types import quoted

__all__ = ["FormatDescriptor", "TableDescriptor"]


@dataclass(frozen=True, slots=True)
class FormatDescriptor:
    """A format and its options. Created by `for_format`.

    Examples:
        >>> from penstock.table import FormatDescriptor, TableDescriptor
        >>> csv = FormatDescriptor.for_format("csv").option("field-delimiter", ";").build()
        >>> orders = TableDescriptor.for_connector("filesystem").option("path", "orders").format(csv).build()
        >>> orders.get_options()
        {'connector': 'filesystem', 'path': 'orders', 'format': 'csv', 'csv.field-delimiter': ';'}
    """

    format: str
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:
        """Return a builder for a format such as `json`."""
        return FormatDescriptor.Builder(format)

    def get_format(self) -> str:
        """Return the name of the format."""
        return self.format

    def get_options(self) -> dict[str, str]:
        """Return the options, without the name of the format as a prefix."""
        return dict(self.options)

    def __str__(self) -> str:
        return f"{self.format}[{self.options}]"

    class Builder:
        """Builds a `FormatDescriptor`."""

        def __init__(self, format: str) -> None:
            self._format = format
            self._options: dict[str, str] = {}

        def option(self, key: str | ConfigOption[Any], value: Any) -> FormatDescriptor.Builder:
            """Set an option, by its key without the name of the format."""
            self._options[_key(key)] = render(value)
            return self

        def build(self) -> FormatDescriptor:
            """Build the format."""
            return FormatDescriptor(self._format, dict(self._options))


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """The columns and options of a table. Created by `for_connector`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
        >>> columns = Schema.new_builder().column("n", "BIGINT").build()
        >>> numbers = TableDescriptor.for_connector("datagen").schema(columns).option("number-of-rows", "3")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> len(t_env.from_descriptor(numbers.build()).to_pandas())
        3
    """

    schema: Schema | None
    options: dict[str, str]
    partition_keys: tuple[str, ...] = ()
    comment: str | None = None

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Return a builder for a table of a connector such as `datagen`."""
        return TableDescriptor.Builder().option("connector", connector)

    def get_schema(self) -> Schema | None:
        """Return the columns, if they are declared."""
        return self.schema

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self.options)

    def get_partition_keys(self) -> list[str]:
        """Return the partition columns."""
        return list(self.partition_keys)

    def get_comment(self) -> str | None:
        """Return the comment, if there is one."""
        return self.comment

    def to_catalog_table(self) -> CatalogBaseTable:
        """Convert the descriptor to the form that catalogs store."""
        return CatalogBaseTable.create_table(self.schema or Schema(), self.partition_keys, self.options, self.comment)

    def __str__(self) -> str:
        keys = ", ".join(map(quoted, self.partition_keys))
        partition = f"\nPARTITIONED BY ({keys})" if keys else ""
        comment = f"\nCOMMENT '{self.comment or ''}'"
        options = ",\n".join(f"  '{key}' = '{value}'" for key, value in self.options.items())
        return f"{self.schema}{comment}{partition}\nWITH (\n{options}\n)"

    class Builder:
        """Builds a `TableDescriptor`. All methods except `build` return the builder itself."""

        def __init__(self) -> None:
            self._schema: Schema | None = None
            self._options: dict[str, str] = {}
            self._partition_keys: tuple[str, ...] = ()
            self._comment: str | None = None

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """Set the columns."""
            self._schema = schema
            return self

        def option(self, key: str | ConfigOption[Any], value: Any) -> TableDescriptor.Builder:
            """Set an option of the connector."""
            self._options[_key(key)] = render(value)
            return self

        def format(
            self, format: str | FormatDescriptor, format_option: ConfigOption[str] | None = None
        ) -> TableDescriptor.Builder:
            """Set the format and its options. `format_option`: the option that holds its name; `format` by default.

            Raises:
                ValueError: if the key of `format_option` is not `format` and does not end in `.format`.
            """
            key = "format" if format_option is None else format_option.key()
            if key != "format" and not key.endswith(".format"):
                raise WrongValueError(f"the option of a format is format or ends in .format, and not {key!r}")
            described = FormatDescriptor(format) if isinstance(format, str) else format
            self._options[key] = described.format
            prefix = f"{key.removesuffix('format')}{described.format}."
            self._options.update({prefix + name: value for name, value in described.options.items()})
            return self

        def partitioned_by(self, *partition_keys: str) -> TableDescriptor.Builder:
            """Set the partition columns."""
            self._partition_keys = partition_keys
            return self

        def comment(self, comment: str) -> TableDescriptor.Builder:
            """Set the comment."""
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            """Build the table."""
            return TableDescriptor(self._schema, dict(self._options), self._partition_keys, self._comment)


def _key(key: str | ConfigOption[Any]) -> str:
    return key.key() if isinstance(key, ConfigOption) else key
