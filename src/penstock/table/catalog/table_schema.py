"""`TableSchema`: names and types of columns, for older programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import WrongValueError
from penstock.table.data.logical_types import DataType, RowField, RowType

__all__ = ["TableSchema"]


@dataclass(frozen=True)
class TableSchema:
    """Names and types of columns, in order. `ResolvedSchema` also has watermarks and keys."""

    field_names: Sequence[str] = ()
    data_types: Sequence[DataType] = ()

    def __post_init__(self) -> None:
        if len(self.field_names) != len(self.data_types):
            raise WrongValueError(f"there are {len(self.field_names)} names and {len(self.data_types)} types")
        object.__setattr__(self, "field_names", tuple(self.field_names))
        object.__setattr__(self, "data_types", tuple(self.data_types))

    def copy(self) -> TableSchema:
        """Return a copy."""
        return TableSchema(self.field_names, self.data_types)

    def get_field_count(self) -> int:
        """Return the number of columns."""
        return len(self.field_names)

    def get_field_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.field_names)

    def get_field_name(self, field_index: int) -> str | None:
        """Return the name of the column at an index, counted from 0; None if out of range."""
        return self.field_names[field_index] if 0 <= field_index < len(self.field_names) else None

    def get_field_data_types(self) -> list[DataType]:
        """Return the types of the columns."""
        return list(self.data_types)

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """Return the type of a column by its index, counted from 0, or its name; None if there is no such column."""
        data_types = dict(enumerate(self.data_types)) if isinstance(field, int) else self._by_name()
        return data_types.get(field)  # type: ignore[arg-type]

    def _by_name(self) -> dict[str, DataType]:
        return dict(zip(self.field_names, self.data_types, strict=True))

    def to_row_data_type(self) -> RowType:
        """Return the columns as a row type."""
        return RowType([RowField(*pair) for pair in zip(self.field_names, self.data_types, strict=True)], False)

    def __repr__(self) -> str:
        lines = [f" |-- {name}: {kind}" for name, kind in zip(self.field_names, self.data_types, strict=True)]
        return "\n".join(["root", *lines, ""])

    @classmethod
    def builder(cls) -> TableSchema.Builder:
        """Return a builder without columns."""
        return TableSchema.Builder()

    class Builder:
        """Collects columns."""

        def __init__(self) -> None:
            self._names: list[str] = []
            self._types: list[DataType] = []

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Add a column."""
            self._names.append(name)
            self._types.append(data_type)
            return self

        def build(self) -> TableSchema:
            """Return the schema."""
            return TableSchema(self._names, self._types)
