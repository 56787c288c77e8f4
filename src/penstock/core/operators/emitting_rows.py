"""Operators whose output type is declared, where that changes what they emit.

Rows: tuples, lists and dicts become `Row`s, and rows get their names. FLOATs are rounded to single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from penstock.base.composite_types import RowTypeInfo
from penstock.base.errors import WrongValueError
from penstock.base.single_precision import rounding
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row, RowKind, values_by_names
from penstock.core.operators.base import Output, StreamOperator
from penstock.core.operators.context import OperatorContext
from penstock.core.records import Batch


class RowMaker:
    """Turns a value into a row of a type: with its names, unless those are the `f0`, `f1`, … of a type without any.

    A row that has the type's names in another order gets the type's order, and so do rows in its fields.
    """

    def __init__(self, type_info: RowTypeInfo) -> None:
        names = tuple(type_info.get_field_names())
        self._names = names
        self._is_named = names != tuple(f"f{index}" for index in range(len(names)))
        fields = enumerate(type_info.get_field_types())
        #: of the fields that are rows
        self._inner = [(place, RowMaker(field)) for place, field in fields if isinstance(field, RowTypeInfo)]

    def __call__(self, value: Any) -> Any:
        """The row; a row that has other names, and a value that has no fields, stays."""
        if isinstance(value, dict):
            row = Row(*[value.get(name) for name in self._names])
        elif isinstance(value, tuple | list):
            row = Row(*value)
        elif isinstance(value, Row) and not self.leaves(value):
            return self._in_order(value)
        else:
            return value
        if self._is_named:
            row.set_field_names(self._names)
        return row

    def _in_order(self, row: Row) -> Row:
        """A copy, because the row that was emitted may be in the state of its function."""
        made = copy(row)
        made._values = list(values_by_names(row, self._names))
        for place, make in self._inner:
            if place < len(made) and isinstance(made[place], Row):
                made[place] = make(made[place])
        if self._is_named and {*(row._fields or self._names)} == {*self._names}:
            made.set_field_names(self._names)
        return made

    def leaves(self, row: Row) -> bool:
        """Whether a row is in order: it has the names of the type, or needs none."""
        if self._is_named and row._fields != self._names:
            return False
        return not self._inner or all(self._leaves_inner(row, place, make) for place, make in self._inner)

    @staticmethod
    def _leaves_inner(row: Row, place: int, make: RowMaker) -> bool:
        return place >= len(row) or not isinstance(row[place], Row) or make.leaves(row[place])


def emitting_rows(factory: Callable[[], StreamOperator], type_info: RowTypeInfo) -> StreamOperator:
    """The operator that `factory` makes, with what it emits to its main output made into rows of the type."""
    operator = factory()
    set_up = operator.setup

    def setup(context: OperatorContext, output: Output) -> None:
        set_up(context, _RowOutput(output, RowMaker(type_info)))

    operator.setup = setup  # type: ignore[method-assign]
    return operator


def emitting_singles(factory: Callable[[], StreamOperator], type_info: TypeInformation) -> StreamOperator:
    """The operator that `factory` makes, with the FLOATs that it emits to its main output in single precision."""
    operator = factory()
    set_up, made = operator.setup, rounding(type_info)
    if made is None:
        raise WrongValueError(f"{type_info!r} holds no FLOAT")

    def setup(context: OperatorContext, output: Output) -> None:
        set_up(context, _ChangedOutput(output, made))

    operator.setup = setup  # type: ignore[method-assign]
    return operator


class _ChangedOutput:
    """An output whose records a function changes on their way."""

    def __init__(self, output: Output, change: Callable[[Any], Any]) -> None:
        self._output = output
        self._change = change

    def collect(self, batch: Batch) -> None:
        changed = list(map(self._change, batch.values))
        self._output.collect(Batch(changed, batch.timestamps, self._kinds(changed, batch.kinds)))

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """The kinds that stay beside the records."""
        return kinds

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self._output.collect_side(tag_id, batch)

    def emit_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        self._output.emit_status(idle)


class _RowOutput(_ChangedOutput):
    """Makes rows of the records that are none yet."""

    def __init__(self, output: Output, make_row: RowMaker) -> None:
        super().__init__(output, make_row)
        self._leaves = make_row.leaves

    def collect(self, batch: Batch) -> None:
        values = batch.values
        if set(map(type, values)) != {Row} or not all(map(self._leaves, values)):
            super().collect(batch)
        else:
            self._output.collect(batch)

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """None: rows know their kinds."""
        for row, kind in zip(changed, kinds or (), strict=False):
            row.set_row_kind(RowKind(kind))
        return None
