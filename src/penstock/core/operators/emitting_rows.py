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
from penstock.base.types import Row, RowKind
from penstock.core.operators.base import Output, StreamOperator
from penstock.core.operators.context import OperatorContext
from penstock.core.records import Batch


class RowMaker:
    """Turns a value into a row of a type: with its names, unless those are the `f0`, `f1`, … of a type without any."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        names = tuple(type_info.get_field_names())
        self._names = names
        self._is_named = names != tuple(f"f{index}" for index in range(len(names)))

    def __call__(self, value: Any) -> Any:
        """The row; one that has names, and what has no fields, is left as it is."""
        if isinstance(value, dict):
            row = Row(*[value.get(name) for name in self._names])
        elif isinstance(value, tuple | list):
            row = Row(*value)
        elif isinstance(value, Row) and not self.leaves(value):
            row = copy(value)  # the one that was emitted may be in the state of its function
        else:
            return value
        if self._is_named:
            row.set_field_names(self._names)
        return row

    def leaves(self, row: Row) -> bool:
        """Whether a row is what it should be: it has names, or needs none."""
        return not self._is_named or row.has_field_names


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
