"""Operators of simulated jobs with shared operator state, whose loss with a finished subtask has visible effects.

There is no user API for operator state, so these use their context's. The effect of each on one record is a plain
function, which the reference computation also uses.
"""

from __future__ import annotations

from typing import Any

from penstock.core.operators.base import StreamOperator
from penstock.core.records import MAX_WATERMARK, Batch
from penstock.drivers.simulation.functions import Record
from penstock.drivers.simulation.outside import outside
from penstock.state.captures import StateCapture

#: Added to a record's number, by its key modulo the length.
TABLE = (3, 5, 11)
#: The number of values of a rule, including none.
RULE_NUMBERS = 64


def labelled(record: Record, table: tuple[int, ...] = TABLE) -> Record:
    """Add the number of the key's label."""
    key, origin, number = record
    return key, origin, number + table[key % len(table)]


def select_rule(record: Record, rules: int) -> int:
    """Return the number of the rule that a record needs."""
    return record[2] % rules


def ruled(record: Record, rule: int | None) -> Record:
    """Apply a rule to a record; the rule is `None` if there never will be one."""
    key, origin, number = record
    return key, origin, number * RULE_NUMBERS + (0 if rule is None else rule + 1)


def rule_number(record: Record, split_records: int) -> int:
    """Return the number of the rule in a record from the rules' source."""
    _, split, position = record[1]
    return int(split * split_records + position)


class LabelOperator(StreamOperator):
    """Labels records by a table that one chosen subtask stores for all, in a union list.

    The table is created when the job begins, and never again: a restored subtask without it assigns wrong labels.
    """

    def __init__(self, world: str, chosen: int) -> None:
        self.world = world
        self.chosen = chosen

    def initialize_state(self) -> None:
        """Create the table, or restore it from the union of all subtasks' state."""
        state = self.context.operator_state
        self._table = state.list_state("table", "union")
        restored = tuple(self._table.get())
        self._labels = restored[: len(TABLE)] if state.is_restored else TABLE
        self._table.update(
            list(self._labels) if self.context.subtask_index == self.chosen % self.context.parallelism else []
        )
        self._call = outside(self.world).on_user_call

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._call()
        labels = self._labels or (0,)
        self.output.collect(Batch([labelled(record, labels) for record in batch.values], batch.timestamps))


class RuleOperator(StreamOperator):
    """Applies rules from a broadcast input to the records of the other input; a record waits until its rule is known.

    The rules are broadcast state, the waiting records a split list. Watermarks wait with them, so no record becomes
    late.
    """

    def __init__(self, world: str, rules: int, split_records: int) -> None:
        self.world = world
        self.rules = rules
        self.split_records = split_records

    def initialize_state(self) -> None:
        state = self.context.operator_state
        self._known = state.broadcast_state("rules")
        self._waiting = state.list_state("waiting", "split")
        self._rules: dict[int, int] = dict(self._known.items())
        self._records: list[tuple[Record, int]] = self._waiting.get()
        self._watermark: int | None = None
        self._call = outside(self.world).on_user_call

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._call()
        if input_index == 1:
            for record in batch.values:
                self._rules[rule_number(record, self.split_records)] = record[2]
        else:
            assert batch.timestamps is not None
            self._records += zip(batch.values, batch.timestamps, strict=True)
        self._emit(is_end=False)

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp
        self._emit(is_end=timestamp == MAX_WATERMARK)

    def _emit(self, is_end: bool) -> None:
        """Emit the records whose rule is known, or all at the end; then the watermark, if no record is waiting."""
        known, rules = self._rules, self.rules
        ready = [(r, t) for r, t in self._records if is_end or select_rule(r, rules) in known]
        if ready:
            self._records = [(r, t) for r, t in self._records if not is_end and select_rule(r, rules) not in known]
            values: list[Any] = [ruled(r, known.get(select_rule(r, rules))) for r, _ in ready]
            self.output.collect(Batch(values, [t for _, t in ready]))
        if self._watermark is not None and not self._records:
            watermark, self._watermark = self._watermark, None
            self.output.emit_watermark(watermark)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        self._known.put_all(self._rules)
        self._waiting.update(self._records)
        return super().snapshot_state(checkpoint_id)
