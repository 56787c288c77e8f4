"""Keyed streams: the key, and running aggregates of each key's records (A1, A2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from penstock.core.operators.keyed.keyed_aggregate import AccumulateType, KeyedAggregateOperator, check_field
from penstock.core.operators.keyed.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.returned import refuse_generator_function
from penstock.datastream.environment import StreamT
from penstock.datastream.stream import Stream


class Keyed(Stream[StreamT]):
    """A stream partitioned by key, whose records can be aggregated."""

    AccumulateType: TypeAlias = AccumulateType

    _key_selector: Callable[[Any], Any]

    @property
    def key_selector(self) -> Callable[[Any], Any]:
        """The function that extracts the key of a record."""
        return self._key_selector

    def reduce(self, func: Any) -> StreamT:
        """Fold each record into its key's value, and emit the new value for every record."""
        refuse_generator_function(func, "reduce")
        factory = partial(KeyedReduceOperator, func, self._key_selector, self.declared_type)
        return self._add("Keyed Reduce", factory, is_stateful=True, keeps_type=True)

    def sum(self, position_to_sum: int | str = 0) -> StreamT:
        """Compute the running sum of a field; the other fields keep the values of the key's first record.

        Args:
            position_to_sum: the field by position, in tuples, lists, rows and dataclasses; or by name, in rows, named
                tuples, dataclasses and dicts (`f0`, `f1`, … in tuples). A plain number is its own field 0.
        """
        return self._accumulate(self.AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> StreamT:
        """Compute the running minimum of a field (see `sum`); other fields come from the key's first record."""
        return self._accumulate(self.AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> StreamT:
        """Compute the running maximum of a field (see `sum`); other fields come from the key's first record."""
        return self._accumulate(self.AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> StreamT:
        """Emit the whole record with the smallest field so far (see `sum`), the first one in case of ties."""
        return self._accumulate(self.AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> StreamT:
        """Emit the whole record with the greatest field so far (see `sum`), the first one in case of ties."""
        return self._accumulate(self.AccumulateType.MAX_BY, position_to_max_by)

    def _accumulate(self, kind: AccumulateType, field: int | str) -> StreamT:
        check_field(field)
        factory = partial(KeyedAggregateOperator, kind, field, self._key_selector, self.declared_type)
        name = f"Keyed {kind.name.replace('_', ' ').title()}"
        return self._add(name, factory, is_stateful=True, keeps_type=True)
