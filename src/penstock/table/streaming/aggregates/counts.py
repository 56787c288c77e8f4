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

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state + 1

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, states)
        results = []
        for group in rows.groups:
            states[group] = count = states[group] + 1
            results.append(count)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        states[:] = map(add, states, bundle.counts())
        return True


class CountOf(CountRows):
    """COUNT of several operands: rows without a NULL operand."""

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        return False

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if None in values else state + 1

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if None in values else state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        return Accumulator.running(self, rows, states)


class CountValues(SingleOperand):
    """COUNT of one operand: its values that are not NULL."""

    counts_alike = True

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, states)
        results = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            count = states[group]
            if operand is not None:
                states[group] = count = count + 1
            results.append(count)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        if bundle.operand is None:
            return False
        states[:] = map(add, states, bundle.counts())
        return True


class SingleValue(SingleOperand):
    """SINGLE_VALUE: (value, number of rows)."""

    skips_null = False

    def create(self) -> Any:
        """See `Accumulator`."""
        return None, 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if state[1] > 0:
            raise TableRuntimeError("SingleValueAggFunction received more than one element.")
        return (value if state[1] == 0 else None), state[1] + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return None, state[1] - 1

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return state[0]
