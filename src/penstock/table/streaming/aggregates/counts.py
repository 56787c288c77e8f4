"""COUNT, and SINGLE_VALUE, which also counts."""

from __future__ import annotations

from operator import add
from typing import Any

from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.aggregates.base import Accumulator, Rows, SingleOperand
from penstock.table.streaming.aggregates.bundled import Bundled


class CountRows(Accumulator):
    """COUNT(*): all rows."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return held + 1

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return held - 1

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, held)
        found = []
        for group in rows.groups:
            held[group] = count = held[group] + 1
            found.append(count)
        return found

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`."""
        held[:] = map(add, held, bundle.counts())
        return True


class CountOf(CountRows):
    """COUNT of several operands: rows without a NULL operand."""

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`."""
        return False

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return held if None in values else held + 1

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return held if None in values else held - 1

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        return Accumulator.running(self, rows, held)


class CountValues(SingleOperand):
    """COUNT of one operand: its values that are not NULL."""

    counts_alike = True

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return held + 1

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return held - 1

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, held)
        found = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            count = held[group]
            if operand is not None:
                held[group] = count = count + 1
            found.append(count)
        return found

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`."""
        if bundle.operand is None:
            return False
        held[:] = map(add, held, bundle.counts())
        return True


class SingleValue(SingleOperand):
    """SINGLE_VALUE: (value, number of rows)."""

    skips_null = False

    def create(self) -> Any:
        """See `Accumulator`."""
        return None, 0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if held[1] > 0:
            raise TableRuntimeError("SingleValueAggFunction received more than one element.")
        return (value if held[1] == 0 else None), held[1] + 1

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return None, held[1] - 1

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return held[0]
