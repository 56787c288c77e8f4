"""`CsvSchema`: PyFlink's description of CSV, for readers and writers of files."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import ConfigurationError
from penstock.base.typeinfo import ObjectArrayTypeInfo, RowTypeInfo, TypeInformation, Types
from penstock.codecs.serialization import OnError
from penstock.formats.csv import CsvFormat, CsvWriterFactory


class CsvSchema:
    """Columns and special characters of CSV; immutable. Create one with `CsvSchema.builder()`."""

    def __init__(self, columns: dict[str, TypeInformation], settings: dict[str, Any]) -> None:
        self.columns = dict(columns)
        self.settings = dict(settings)

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a new builder."""
        return CsvSchemaBuilder()

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return Types.ROW_NAMED(list(self.columns), list(self.columns.values()))

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class CsvSchemaBuilder:
    """Collects columns and special characters; every method except `build` and `size` returns the builder."""

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._array_separators: dict[str, str] = {}
        self._any_property: str | None = None
        self._settings: dict[str, Any] = {"header": False}

    def build(self) -> CsvSchema:
        """Build the schema.

        Raises:
            ConfigurationError: if there are no columns, or an array column has no element separator.
        """
        if not self._columns:
            raise ConfigurationError("a CSV schema needs columns")
        if self._any_property in self._columns:
            raise ConfigurationError(
                f"the name of further fields, {self._any_property!r}, is that of a column; choose another one"
            )
        settings = {**self._settings, "array_separators": dict(self._array_separators)}
        if settings.get("array_separator", ";") is None:
            del settings["array_separator"]
            arrays = [name for name, kind in self._columns.items() if isinstance(kind, ObjectArrayTypeInfo)]
            if without := [name for name in arrays if name not in self._array_separators]:
                raise ConfigurationError(
                    f"the separator of array elements is disabled, but {', '.join(map(repr, without))} are arrays "
                    "without their own separator"
                )
        return CsvSchema(self._columns, settings)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, Types.STRING())

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of `true` and `false` (or 1 and 0)."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> CsvSchemaBuilder:
        """Add a column of numbers, by default 64-bit integers."""
        return self._add(name, number_type or Types.LONG())

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of arrays, by default of text, with its own element separator."""
        self._add(name, Types.OBJECT_ARRAY(element_type or Types.STRING()))
        self._array_separators[name] = separator
        return self

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Give the array column at this position the schema's element separator in place of its own.

        Raises:
            ConfigurationError: if the schema has no such column.
        """
        if not 0 <= index < len(self._columns):
            raise ConfigurationError(
                f"the CSV schema has {len(self._columns)} columns, so it has none at position {index}"
            )
        self._array_separators.pop(list(self._columns)[index], None)
        return self

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add all columns of another schema."""
        for name, column_type in schema.columns.items():
            self._add(name, column_type)
        self._array_separators.update(schema.settings.get("array_separators", {}))
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns, self._array_separators = {}, {}
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Let files begin with the names of their columns, which are then looked up by name; off by default."""
        return self._set("header", use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Do nothing; accepted for PyFlink programs. A header that lacks one of the columns is always an error."""
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between fields; `,` by default."""
        return self._set("delimiter", char)

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of array elements in columns without their own; `;` by default."""
        return self._set("array_separator", separator)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Disable the separator for array columns without their own, so that no such column is allowed."""
        return self._set("array_separator", None)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Skip the first line of each file, or the one after its header, when reading; off by default."""
        return self._set("skip_first_row", skip)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around fields; `"` by default."""
        return self._set("quote", char)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Use no character around fields."""
        return self._set("quote", None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that makes the next one literal; none by default."""
        return self._set("escape", char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Use no escape character."""
        return self._set("escape", None)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that represents None."""
        return self._set("null_value", null_value)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the end of written lines: a line feed (the default), or a carriage return and a line feed.

        Both are always accepted when reading.

        Raises:
            ConfigurationError: if it is neither.
        """
        if separator not in ("\n", "\r\n"):
            raise ConfigurationError(
                f"a CSV line must end in a line feed, alone or after a carriage return, not in {separator!r}"
            )
        return self._set("line_end", separator)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Allow fields after the last column, under this name; rows omit them, since they have columns only.

        Without it, such a line is malformed. Written lines have no such fields.

        Raises:
            ConfigurationError: when the schema is built, if it has a column of that name.
        """
        self._any_property = name
        return self._set("extra_fields", True)

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Skip lines that begin with `#`; off by default."""
        return self._set("comments", allow)

    def size(self) -> int:
        """Return the number of columns so far."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _add(self, name: str, column_type: TypeInformation) -> CsvSchemaBuilder:
        if name in self._columns:
            raise ConfigurationError(f"the CSV schema already has column {name!r}")
        self._columns[name] = column_type
        return self

    def _set(self, name: str, value: Any) -> CsvSchemaBuilder:
        self._settings[name] = value
        return self


def csv_format(schema: CsvSchema, on_error: OnError = "fail", **more: Any) -> CsvFormat:
    """Create the format that reads files of a schema, as rows with names; `more` goes to `CsvFormat`."""
    settings = {name: value for name, value in schema.settings.items() if name != "line_end"}
    null_value = settings.pop("null_value", None)
    nulls = () if null_value is None else (null_value,)
    return CsvFormat(schema.row_type, null_values=nulls, on_error=on_error, **settings, **more)


def csv_writer(schema: CsvSchema) -> CsvWriterFactory:
    """Create the factory of writers for files of a schema."""
    settings = {
        name: value
        for name, value in schema.settings.items()
        if name not in ("comments", "skip_first_row", "extra_fields")
    }
    return CsvWriterFactory(schema.row_type, **settings)
