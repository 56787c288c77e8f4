"""Operators whose declared output type changes the records that they emit.

Rows: tuples, lists and dicts become `Row`s, and rows get the names of the type, in its order. FLOATs are rounded to
single precision. Both also apply inside other types, and to side outputs that are read with a type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.base.composite_types import RowTypeInfo
from penstock.base.declared_values import Change, RowMaker, fitting
from penstock.base.errors import WrongValueError
from penstock.base.single_precision import rounding
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row, RowKind
from penstock.core.operators.base import Output, StreamOperator, UserCodeError, call_all
from penstock.core.operators.context import OperatorContext
from penstock.core.records import Batch

#: The place that errors name for a record without the declared type.
_OUTPUT: Final = "the output of the operator"


def emitting_rows(factory: Callable[[], StreamOperator], type_info: RowTypeInfo) -> StreamOperator:
    """Create the operator of `factory`, and convert the records of its main output to rows of the type."""
    return _with_output(factory, lambda context, output: _RowOutput(context, output, RowMaker(type_info)))


def emitting_singles(factory: Callable[[], StreamOperator], type_info: TypeInformation) -> StreamOperator:
    """Create the operator of `factory`, and round the FLOATs of its main output to single precision."""
    convert = rounding(type_info)
    if convert is None:
        raise WrongValueError(f"{type_info!r} holds no FLOAT")
    return _with_output(factory, lambda context, output: _ChangedOutput(context, output, convert))


def emitting_declared(factory: Callable[[], StreamOperator], type_info: TypeInformation) -> StreamOperator:
    """Create the operator of `factory`, and convert its main output to a type that holds a ROW or a FLOAT."""
    convert = fitting(type_info)
    if convert is None:
        raise WrongValueError(f"{type_info!r} holds neither a ROW nor a FLOAT")
    return _with_output(factory, lambda context, output: _ChangedOutput(context, output, convert))


def emitting_sides(
    factory: Callable[[], StreamOperator], types: tuple[tuple[str, TypeInformation], ...]
) -> StreamOperator:
    """Create the operator of `factory`, and convert its side outputs to their types, by tag."""
    changes = {tag_id: convert for tag_id, type_info in types if (convert := fitting(type_info)) is not None}
    return _with_output(factory, lambda context, output: _SideOutput(context, output, changes))


def _with_output(
    factory: Callable[[], StreamOperator], around: Callable[[OperatorContext, Output], Output]
) -> StreamOperator:
    operator = factory()
    set_up = operator.setup

    def setup(context: OperatorContext, output: Output) -> None:
        set_up(context, around(context, output))

    operator.setup = setup  # type: ignore[method-assign]
    return operator


class _ChangedOutput:
    """An output that applies a function to its records, except for side outputs."""

    def __init__(self, context: OperatorContext, output: Output, change: Change) -> None:
        self._context = context
        self._output = output
        self._change = change

    def collect(self, batch: Batch) -> None:
        changed = _changed(self._context, self._change, batch.values)
        self._output.collect(Batch(changed, batch.timestamps, self._kinds(changed, batch.kinds)))

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """Return the row kinds to pass on beside the records."""
        return kinds

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self._output.collect_side(tag_id, batch)

    def emit_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        self._output.emit_status(idle)


class _RowOutput(_ChangedOutput):
    """Converts records that are not yet rows of the type."""

    def __init__(self, context: OperatorContext, output: Output, make_row: RowMaker) -> None:
        super().__init__(context, output, make_row)
        self._leaves = make_row.leaves

    def collect(self, batch: Batch) -> None:
        values = batch.values
        if set(map(type, values)) != {Row} or not self._leave(values):
            super().collect(batch)
        else:
            self._output.collect(batch)

    def _leave(self, values: list[Any]) -> bool:
        try:
            return all(map(self._leaves, values))
        except WrongValueError:  # `_changed` raises it again and names the record
            return False

    def _kinds(self, changed: list[Any], kinds: bytes | None) -> bytes | None:
        """Set the row kinds in the rows, and return None."""
        for row, kind in zip(changed, kinds or (), strict=False):
            row.set_row_kind(RowKind(kind))
        return None


class _SideOutput:
    """An output that applies functions to the records of some side outputs; the main output stays the same."""

    def __init__(self, context: OperatorContext, output: Output, changes: Mapping[str, Change]) -> None:
        self._context = context
        self._output = output
        self._changes = changes
        self.collect = output.collect

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        change = self._changes.get(tag_id)
        if change is not None:
            changed = _changed(self._context, change, batch.values)
            batch = Batch(changed, batch.timestamps, batch.kinds)
        self._output.collect_side(tag_id, batch)

    def emit_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def emit_status(self, idle: bool) -> None:
        self._output.emit_status(idle)


def _changed(context: OperatorContext, change: Change, values: list[Any]) -> list[Any]:
    """Apply a function to the records that an operator emits; returns its results."""
    changed: list[Any] = []
    try:
        call_all(change, values, changed)
    except WrongValueError as error:
        raise UserCodeError(context.operator_name, values[len(changed)], _OUTPUT) from error
    return changed
