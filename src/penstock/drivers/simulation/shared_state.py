"""Operators of simulated jobs whose operator state is shared: losing it with a subtask that has finished shows.

There is no user API for operator state, so these use their context's. What each does to one record is a plain function,
which the reference computation uses too.
"""

from __future__ import annotations

from typing import Any

from penstock.core.operators.base import StreamOperator
from penstock.core.records import MAX_WATERMARK, Batch
from penstock.drivers.simulation.functions import Record
from penstock.drivers.simulation.outside import outside
from penstock.state.captures import StateCapture

#: What is added to a record's number, by its key modulo the length.
TABLE = (3, 5, 11)
#: How many numbers there are for each rule, or none.
RULE_NUMBERS = 64


def labelled(record: Record, table: tuple[int, ...] = TABLE) -> Record:
    """The number of the key's label added."""
    key, origin, number = record
    return key, origin, number + table[key % len(table)]


def rule_of(record: Record, rules: int) -> int:
    """Which rule a record needs."""
    return record[2] % rules


def ruled(record: Record, rule: int | None) -> Record:
    """A record after its rule; `None` when there is none and never will be."""
    key, origin, number = record
    return key, origin, number * RULE_NUMBERS + (0 if rule is None else rule + 1)


def rule_number(record: Record, split_records: int) -> int:
    """The number of the rule that a record of the rules' source holds."""
    _, split, position = record[1]
    return int(split * split_records + position)


class LabelOperator(StreamOperator):
    """Labels records by a table that one chosen subtask stores for all, in a union list.

    The table is made when the job begins, and never again: a restored subtask without it labels wrongly.
    """

    def __init__(self, world: str, chosen: int) -> None:
        self.world = world
        self.chosen = chosen

    def initialize_state(self) -> None:
        """Make the table, or take it from what all subtasks stored."""
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
    """Applies rules from a broadcast input to the records of the other one; a record waits until its rule is known.

    The rules are broadcast state, the records that wait a split list. Watermarks wait with them: nothing becomes late.
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
        """What has its rule; at the end all, and the watermark when nothing waits any more."""
        known, rules = self._rules, self.rules
        ready = [(r, t) for r, t in self._records if is_end or rule_of(r, rules) in known]
        if ready:
            self._records = [(r, t) for r, t in self._records if not is_end and rule_of(r, rules) not in known]
            values: list[Any] = [ruled(r, known.get(rule_of(r, rules))) for r, _ in ready]
            self.output.collect(Batch(values, [t for _, t in ready]))
        if self._watermark is not None and not self._records:
            watermark, self._watermark = self._watermark, None
            self.output.emit_watermark(watermark)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        self._known.put_all(self._rules)
        self._waiting.update(self._records)
        return super().snapshot_state(checkpoint_id)
