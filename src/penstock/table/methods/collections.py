"""Arrays, maps, multisets and rows."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary, to_node
from penstock.table.sql import syntax


class Collections(Operand):
    """Methods of arrays, maps, multisets and rows. Array indexes count from 1."""

    cardinality = Unary("CARDINALITY", "The number of elements or entries.")
    element = Unary("ELEMENT", "The only element, or NULL if the collection is empty; more than one is an error.")
    map_keys = Unary("MAP_KEYS", "The keys of the map as an array.")
    map_values = Unary("MAP_VALUES", "The values of the map as an array.")
    map_entries = Unary("MAP_ENTRIES", "The entries of the map as an array of rows.")

    def at(self, index: object) -> Self:
        """Return an array element by its index, or a map value by its key."""
        return self._new(syntax.Item(self._node, to_node(index)))

    def __getitem__(self, index: object) -> Self:
        return self.at(index)

    def get(self, name_or_index: str | int) -> Self:
        """Return a field of a row by its name or its index, counted from 0."""
        if isinstance(name_or_index, int):
            return self.at(name_or_index + 1)
        return self._new(syntax.FieldAccess(self._node, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row as columns of their own. Only allowed among the selected columns."""
        return self._new(syntax.FieldAccess(self._node, "*"))

    # --- arrays ------------------------------------------------------------------------------------------------------

    def array_append(self, addition: object) -> Self:
        """Append an element to the array."""
        return self._called("ARRAY_APPEND", Operand(to_node(addition)))

    def array_prepend(self, addition: object) -> Self:
        """Prepend an element to the array."""
        return self._called("ARRAY_PREPEND", Operand(to_node(addition)))

    def array_concat(self, *arrays: object) -> Self:
        """Concatenate arrays to the array."""
        return self._called("ARRAY_CONCAT", *arrays)

    def array_contains(self, needle: object) -> Self:
        """Return whether the array contains an element."""
        return self._called("ARRAY_CONTAINS", Operand(to_node(needle)))

    def array_distinct(self) -> Self:
        """Return the distinct elements."""
        return self._called("ARRAY_DISTINCT")

    def array_except(self, array: object) -> Self:
        """Return the elements that are not in another array."""
        return self._called("ARRAY_EXCEPT", array)

    def array_intersect(self, array: object) -> Self:
        """Return the elements that are also in another array."""
        return self._called("ARRAY_INTERSECT", array)

    def array_union(self, array: object) -> Self:
        """Return the distinct elements of both arrays."""
        return self._called("ARRAY_UNION", array)

    def array_join(self, delimiter: object, null_replacement: object | None = None) -> Self:
        """Join the elements with a delimiter. NULL is omitted unless a replacement is given."""
        return self._called("ARRAY_JOIN", delimiter, null_replacement)

    def array_max(self) -> Self:
        """Return the greatest element."""
        return self._called("ARRAY_MAX")

    def array_min(self) -> Self:
        """Return the least element."""
        return self._called("ARRAY_MIN")

    def array_position(self, needle: object) -> Self:
        """Return the index of an element, or 0."""
        return self._called("ARRAY_POSITION", Operand(to_node(needle)))

    def array_remove(self, needle: object) -> Self:
        """Remove all elements equal to a value."""
        return self._called("ARRAY_REMOVE", Operand(to_node(needle)))

    def array_reverse(self) -> Self:
        """Reverse the array."""
        return self._called("ARRAY_REVERSE")

    def array_slice(self, start_offset: object, end_offset: object | None = None) -> Self:
        """Return the elements from one index to another (inclusive), by default to the end."""
        return self._called("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: object | None = None, null_first: object | None = None) -> Self:
        """Sort the elements, by default in ascending order. NULL defaults to first if ascending and last otherwise."""
        if null_first is not None and ascending_order is None:
            ascending_order = True
        return self._called("ARRAY_SORT", ascending_order, null_first)

    # --- maps and objects --------------------------------------------------------------------------------------------

    def map_union(self, *maps: object) -> Self:
        """Merge maps. For equal keys the last map wins."""
        return self._called("MAP_UNION", *maps)

    def object_update(self, *kv: object) -> Self:
        """Set fields of the object, given as alternating names and values."""
        return self._called("OBJECT_UPDATE", *(Operand(to_node(value)) for value in kv))
