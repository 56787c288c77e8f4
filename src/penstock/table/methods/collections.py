"""Arrays, maps, multisets and rows."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary, node_of
from penstock.table.sql import syntax


class Collections(Operand):
    """What there is for values that consist of others. Places in an array are counted from 1."""

    cardinality = Unary("CARDINALITY", "How many elements or entries there are.")
    element = Unary("ELEMENT", "The only element, or NULL where there is none; more than one is an error.")
    map_keys = Unary("MAP_KEYS", "An array of the keys of a map.")
    map_values = Unary("MAP_VALUES", "An array of the values of a map.")
    map_entries = Unary("MAP_ENTRIES", "An array of the entries of a map, as rows.")

    def at(self, index: object) -> Self:
        """The element at a place of an array, or the value of a key of a map."""
        return self._new(syntax.Item(self._node, node_of(index)))

    def __getitem__(self, index: object) -> Self:
        return self.at(index)

    def get(self, name_or_index: str | int) -> Self:
        """A field of a row, by its name or by its place, counted from 0."""
        if isinstance(name_or_index, int):
            return self.at(name_or_index + 1)
        return self._new(syntax.FieldAccess(self._node, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row as columns of their own; only among the selected columns."""
        return self._new(syntax.FieldAccess(self._node, "*"))

    # --- arrays ------------------------------------------------------------------------------------------------------

    def array_append(self, addition: object) -> Self:
        """The array with an element after it."""
        return self._called("ARRAY_APPEND", Operand(node_of(addition)))

    def array_prepend(self, addition: object) -> Self:
        """The array with an element before it."""
        return self._called("ARRAY_PREPEND", Operand(node_of(addition)))

    def array_concat(self, *arrays: object) -> Self:
        """The array and others after it."""
        return self._called("ARRAY_CONCAT", *arrays)

    def array_contains(self, needle: object) -> Self:
        """Whether an element is in the array."""
        return self._called("ARRAY_CONTAINS", Operand(node_of(needle)))

    def array_distinct(self) -> Self:
        """The elements, each once."""
        return self._called("ARRAY_DISTINCT")

    def array_except(self, array: object) -> Self:
        """The elements that are not in another array."""
        return self._called("ARRAY_EXCEPT", array)

    def array_intersect(self, array: object) -> Self:
        """The elements that are in another array, too."""
        return self._called("ARRAY_INTERSECT", array)

    def array_union(self, array: object) -> Self:
        """The elements of both arrays, each once."""
        return self._called("ARRAY_UNION", array)

    def array_join(self, delimiter: object, null_replacement: object | None = None) -> Self:
        """One text of all, with a delimiter in between. NULL is left out unless there is a replacement."""
        return self._called("ARRAY_JOIN", delimiter, null_replacement)

    def array_max(self) -> Self:
        """The greatest element."""
        return self._called("ARRAY_MAX")

    def array_min(self) -> Self:
        """The least element."""
        return self._called("ARRAY_MIN")

    def array_position(self, needle: object) -> Self:
        """The place of an element, or 0."""
        return self._called("ARRAY_POSITION", Operand(node_of(needle)))

    def array_remove(self, needle: object) -> Self:
        """The array without the elements that are like this one."""
        return self._called("ARRAY_REMOVE", Operand(node_of(needle)))

    def array_reverse(self) -> Self:
        """The elements from the last to the first."""
        return self._called("ARRAY_REVERSE")

    def array_slice(self, start_offset: object, end_offset: object | None = None) -> Self:
        """The elements from one place to another, both included; to the end unless that is given."""
        return self._called("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: object | None = None, null_first: object | None = None) -> Self:
        """The elements in order, ascending unless it is said otherwise; NULL comes first when that is ascending."""
        if null_first is not None and ascending_order is None:
            ascending_order = True
        return self._called("ARRAY_SORT", ascending_order, null_first)

    # --- maps and objects --------------------------------------------------------------------------------------------

    def map_union(self, *maps: object) -> Self:
        """The entries of all maps; of several with one key, the last one."""
        return self._called("MAP_UNION", *maps)

    def object_update(self, *kv: object) -> Self:
        """The object with other values of some fields: names and values by turns."""
        return self._called("OBJECT_UPDATE", *(Operand(node_of(one)) for one in kv))
