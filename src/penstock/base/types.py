"""`Row`, the record type of tables and of streams with named fields, and access to a record's fields by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, SupportsIndex

from penstock.base.errors import UnknownFieldError, WrongTypeError, WrongValueError

__all__ = ["Row", "RowKind"]


class RowKind(Enum):
    """The kind of a row in a changelog.

    Examples:
        >>> from penstock.common import Row, RowKind
        >>> row = Row.of_kind(RowKind.DELETE, "tea", 2)
        >>> row.get_row_kind().short_string, str(row)
        ('-D', '-D[tea, 2]')
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short_string(self) -> str:
        """The short form in print: `+I`, `-U`, `+U` or `-D`."""
        return _SHORT_STRINGS[self.value]


_SHORT_STRINGS = ("+I", "-U", "+U", "-D")


class Row:
    """A record of fields by position, and by name where names are known.

    `repr` shows names and values as Python; `str` shows the row as Flink prints it, `+I[Alice, 11]`. Rows are equal if
    kind, names and values are. Fields can be assigned with `row[0] = x`, so a row used as a key must not be changed.

    Raises:
        ValueError: if both positional and keyword arguments are given.

    Examples:
        Positional values create a row without names, keyword arguments one with names, in the given order:

        >>> from penstock.common import Row
        >>> row = Row(name="Alice", age=11)
        >>> row["name"], row.age, row[0]
        ('Alice', 11, 'Alice')

        Calling a row of names creates rows with these names:

        >>> Person = Row("name", "age")
        >>> Person("Alice", 11)
        Row(name='Alice', age=11)

        The fields of a row without names are `f0`, `f1`, and so on, as in `Types.ROW`:

        >>> Row("Alice", 11).f1
        11
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: tuple[Any, ...] | None
    _row_kind: RowKind
    _values: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            if args:
                raise WrongValueError("a Row takes positional values or named values, not both")
            self._fields = tuple(kwargs)
            self._values = list(kwargs.values())
        else:
            self._fields = None
            self._values = list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Return a row of the given kind, with values as for `Row` itself."""
        row = Row(*args, **kwargs)
        row._row_kind = row_kind
        return row

    def as_dict(self, recursive: bool = False) -> dict[Any, Any]:
        """Return the fields as a dict from name to value; `recursive` also converts nested rows to dicts.

        Raises:
            TypeError: if the row has no field names.

        Examples:
            >>> Row(name="Ann", at=Row(city="Bern")).as_dict(recursive=True)
            {'name': 'Ann', 'at': {'city': 'Bern'}}
        """
        if self._fields is None:
            raise WrongTypeError("a Row without field names cannot become a dict")
        values = [_unpack(value) for value in self._values] if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def get_row_kind(self) -> RowKind:
        """Return the kind of this row in a changelog; `RowKind.INSERT` unless set otherwise."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of this row in a changelog."""
        self._row_kind = row_kind

    @property
    def has_field_names(self) -> bool:
        """Whether the fields have names."""
        return self._fields is not None

    def set_field_names(self, field_names: Sequence[Any]) -> None:
        """Set the names of the fields, in order."""
        self._fields = tuple(field_names)

    def get_fields_by_names(self, names: Sequence[Any]) -> list[Any]:
        """Return the values of the named fields, in the order requested; all values if the row has no names.

        Raises:
            UnknownFieldError: if the row has no field of a requested name.
        """
        if self._fields is None:
            return list(self._values)
        return [self[name] for name in names]

    def __call__(self, *args: Any) -> Row:
        """Return a row with the given values, named by this row's values.

        Raises:
            ValueError: if there are more values than names.
        """
        if len(args) > len(self._values):
            raise WrongValueError(
                f"{self!r} has {len(self._values)} fields, but was given {len(args)} values: {args!r}"
            )
        row = Row(*args)
        row._fields = tuple(self._values)
        row._row_kind = self._row_kind
        return row

    def __contains__(self, item: object) -> bool:
        return item in self._values

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, (int, slice)):
            return self._values[item]
        return self._values[self._index(item)]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, (int, slice)):
            self._values[key] = value
        else:
            self._values[self._index(key)] = value

    def __getattr__(self, item: str) -> Any:
        # Reached only for names that are not attributes of the class. Names with leading underscores are never fields,
        # so pickle and copy, which probe for such names before the slots are filled, get an AttributeError.
        if not item.startswith("_"):
            try:
                return self._values[self._index(item)]
            except UnknownFieldError:
                pass
        raise AttributeError(item)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self._values == other._values and self._fields == other._fields and self._row_kind is other._row_kind

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __str__(self) -> str:
        return f"{self._row_kind.short_string}[{', '.join(map(_render, self._values))}]"

    def __copy__(self) -> Row:
        return _make_row_of_kind(self._row_kind.value, self._fields, *self._values)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # Most rows are inserts and are pickled without a kind. Rows from one producer share their tuple of names, and
        # pickle writes a shared object once.
        if self._row_kind is not RowKind.INSERT:
            return _make_row_of_kind, (self._row_kind.value, self._fields, *self._values)
        if self._fields is None:
            return Row, tuple(self._values)
        return _make_row, (self._fields, *self._values)

    def _index(self, name: Any) -> int:
        """Return the position of the field called `name`."""
        if self._fields is not None:
            try:
                index = self._fields.index(name)
            except ValueError:
                pass
            else:
                if index < len(self._values):
                    return index
        elif isinstance(name, str) and name[:1] == "f" and name[1:].isdecimal():
            # The name that `Types.ROW` gives to fields of rows without names.
            index = int(name[1:])
            if index < len(self._values) and name == f"f{index}":
                return index
        raise UnknownFieldError(f"no field {name!r} in {self!r}")


def values_by_names(row: Row, names: tuple[str, ...]) -> Sequence[Any]:
    """Return a row's values in the order of `names` if these are the row's names in any order, otherwise unchanged."""
    fields = row._fields
    if fields is None or fields == names or len(fields) != len(names) or {*fields} != {*names}:
        return row._values
    indices = {name: index for index, name in enumerate(fields)}
    return [row._values[indices[name]] for name in names]


def _make_row(fields: tuple[Any, ...] | None, *values: Any) -> Row:
    """Rebuild a row with names."""
    row = Row(*values)
    row._fields = fields
    return row


def _make_row_of_kind(row_kind_value: int, fields: tuple[Any, ...] | None, *values: Any) -> Row:
    """Rebuild a row that is not an insert."""
    row = _make_row(fields, *values)
    row._row_kind = RowKind(row_kind_value)
    return row


def _unpack(value: Any) -> Any:
    """Return `value` with all rows in it, including those in lists, tuples and dicts, converted to dicts if named."""
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_unpack(item) for item in value)
    if isinstance(value, dict):
        return {key: _unpack(item) for key, item in value.items()}
    return value


def _render(value: Any) -> str:
    """Format a value as Flink prints it inside a row."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_render, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_render(key)}={_render(item)}' for key, item in value.items())}}}"
    return str(value)


def get_field(record: Any, name: str) -> Any:
    """Return a field: from a row or dict by key, from a tuple as `f0`, `f1`, …, and from anything else by attribute.

    Raises:
        TypeError: if the record has no such field.
    """
    try:
        if isinstance(record, Row | dict):
            return record[name]
        if type(record) is tuple or isinstance(record, list):
            return record[int(name[1:])] if name.startswith("f") else getattr(record, name)
        return getattr(record, name)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise WrongTypeError(f"a record of type {type(record).__name__} has no field {name!r}") from error
