"""Planted bugs in the operators of tables: each a patch at one place, applied for the length of a `with`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from tests.simulation.mutants_of_jobs import leave_key_groups_with_the_old_subtask
from tests.simulation.planting import Mutant, around

from penstock.runtime.checkpoint import restore as restore_module
from penstock.runtime.graph import BROADCAST, JobGraph
from penstock.runtime.job import recovery as job_recovery_module
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_BEFORE
from penstock.sql.stream import planner as planner_module
from penstock.sql.stream.aggregates import functions as aggregates_module
from penstock.sql.stream.aggregates.distinct import DistinctView
from penstock.sql.stream.changelog import ChangelogNormalizeOperator
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator
from penstock.sql.stream.groups.indexed import VALUES, FewGroups
from penstock.sql.stream.groups.operators import Lives
from penstock.sql.stream.joins.regular import SemiJoinOperator
from penstock.sql.stream.joins.regular import Sent as JoinSent
from penstock.sql.stream.joins.temporal import TemporalJoinOperator
from penstock.sql.stream.over.operators import OverInOrderOperator
from penstock.sql.stream.planning import upsert_keys as upsert_keys_module
from penstock.sql.stream.process.calls import StateEntry
from penstock.sql.stream.process.operator import KeyedProcessOperator as ProcessTableOperator
from penstock.sql.stream.ranking.deduplicate import FirstRowOperator
from penstock.sql.stream.ranking.indexed_last_row import IndexedLastRowOperator
from penstock.sql.stream.ranking.top_n import RetractableTopN
from penstock.sql.stream.ranking.top_n import Sent as RankSent
from penstock.sql.stream.rows.state_ttl import BundlingOperator, StateTimes
from penstock.sql.stream.rows.watermarks import WatermarkAssignerOperator
from penstock.sql.user_functions.signature import LIST, MAP
from penstock.state.key_columns import ColumnStates


@contextmanager
def lose_updates_before_of_groups() -> Iterator[None]:
    def few_changes(original: Any, lives: Any, before: Any, after: Any, sends_before: bool, *more: Any) -> Any:
        return original(lives, before, after, False, *more)

    def send(original: Any, operator: Any, *args: Any) -> Any:
        operator._sends_before = False
        return original(operator, *args)

    with (
        around(Lives, "few_changes", few_changes),
        around(ColumnGroupAggregateOperator, "_send", send),
        around(FewGroups, "process", send),
    ):
        yield


def _never_send(kind_of_null_row: int) -> Any:
    def add(original: Any, sent: Any, mine: Any, other: Any, kind: int, times: int = 1) -> None:
        if mine is not None or kind != kind_of_null_row:
            original(sent, mine, other, kind, times)

    return around(JoinSent, "add", add)


def keep_the_null_row_when_a_match_comes() -> Any:
    return _never_send(DELETE)


def bring_no_null_row_back_when_the_last_match_goes() -> Any:
    return _never_send(INSERT)


def let_a_half_join_forget_that_it_had_matches() -> Any:
    def join_row(original: Any, operator: Any, *args: Any) -> int:
        original(operator, *args)
        return 0

    return around(SemiJoinOperator, "join_row", join_row)


def take_the_key_of_one_side_for_that_of_a_join() -> Any:
    return mock.patch.object(upsert_keys_module, "_joined", lambda node, left, right, calls: left)


def promote_no_row_when_one_goes() -> Any:
    def remove(original: Any, top: Any, held: Any, key: Any, row: Any, sent: Any, owes: bool = True) -> None:
        found = RankSent()
        original(top, held, key, row, found, owes)
        for change in zip(found.kinds, found.rows, found.numbers, strict=True):
            if change[0] in (DELETE, UPDATE_BEFORE):
                sent.add(*change)

    return around(RetractableTopN, "remove", remove)


def normalize_without_updates_before() -> Any:
    def process_batch(original: Any, operator: Any, *args: Any) -> None:
        operator._sends_before = False
        original(operator, *args)

    return around(ChangelogNormalizeOperator, "process_batch", process_batch)


@contextmanager
def count_distinct_values_once() -> Iterator[None]:
    def changed_count(counts: Any, key: Any, by: int) -> int:
        if by > 0:
            fresh = key not in counts
            counts[key] = 1
            return 1 if fresh else 2
        return -1 if counts.pop(key, None) is None else 0

    def count(original: Any, view: Any, pairs: Any, *args: Any) -> None:
        original(view, pairs, *args)
        for marks in view._marks:
            marks.array[pairs] = np.minimum(marks.array[pairs], 1)

    def step(original: Any, few: Any, group: Any, *args: Any) -> None:
        original(few, group, *args)
        for values in group[VALUES]:
            for marks in values.values():
                marks[:] = [min(mark, 1) for mark in marks]

    with (
        mock.patch.object(aggregates_module, "changed_count", changed_count),
        around(DistinctView, "_count", count),
        around(FewGroups, "_step", step),
    ):
        yield


def leave_what_has_gone_in_running_sums() -> Any:
    return mock.patch.object(OverInOrderOperator, "_go_on", return_value=None)


def wait_for_no_first_row_after_a_restore() -> Any:
    def opened(original: Any, operator: Any) -> None:
        original(operator)
        operator._due.clear()

    return around(FirstRowOperator, "open", opened)


def forget_the_last_rows_at_a_restore() -> Any:
    def restored(original: Any, operator: Any) -> None:
        original(operator)
        operator._rows.release(operator._rows.kept_numbers())
        operator._build_index()

    return around(IndexedLastRowOperator, "initialize_state", restored)


def restore_no_windows() -> Any:
    return mock.patch.object(ColumnStates, "restore", return_value=None)


def let_restored_state_begin_its_life_anew() -> Any:
    def begin(original: Any, times: Any, keys: Any, now_ms: int) -> None:
        times.write(list(keys), now_ms)

    return around(StateTimes, "begin", begin)


def leave_bundles_out_of_snapshots() -> Any:
    return mock.patch.object(BundlingOperator, "prepare_snapshot", return_value=None)


def let_watermarks_run_ahead() -> Any:
    return around(WatermarkAssignerOperator, "_advance", lambda original, self, mark: original(self, mark + 15))


def answer_with_the_newest_version() -> Any:
    def process_watermark(original: Any, operator: Any, timestamp: int) -> None:
        original(operator, timestamp + 10_000)

    return around(TemporalJoinOperator, "process_watermark", process_watermark)


def deal_changes_out_in_turn() -> Any:
    return mock.patch.object(planner_module, "parallelism_in_order", return_value=None)


@contextmanager
def let_barriers_overtake_on_pointwise_edges() -> Iterator[None]:
    def vertices_forced_aligned(original: Any, graph: Any) -> set[int]:
        return {edge.target for edge in graph.edges if edge.partitioning == BROADCAST}

    with (
        around(JobGraph, "vertices_forced_aligned", vertices_forced_aligned),
        mock.patch.object(restore_module, "check_in_flight", return_value=None),
        mock.patch.object(job_recovery_module, "check_in_flight", return_value=None),
    ):
        yield


#: Each mutant, words in the names of queries that may show it, and a seed from which on one does soon. All are found by
#: the rows of the query, or by a row that is taken back before it came.
MUTANTS: dict[Mutant, tuple[str, int]] = {
    lose_updates_before_of_groups: ("nested", 6),
    keep_the_null_row_when_a_match_comes: ("join", 27),
    bring_no_null_row_back_when_the_last_match_goes: ("join", 216),
    let_a_half_join_forget_that_it_had_matches: ("exists", 150),
    take_the_key_of_one_side_for_that_of_a_join: ("join by", 22),
    promote_no_row_when_one_goes: ("first rows", 5),
    normalize_without_updates_before: ("groups", 34),
    count_distinct_values_once: ("groups", 104),
    leave_what_has_gone_in_running_sums: ("running", 55),
    wait_for_no_first_row_after_a_restore: ("first row", 552),
    forget_the_last_rows_at_a_restore: ("last row", 1521),
    restore_no_windows: ("aggregate", 16),
    leave_key_groups_with_the_old_subtask: ("", 56),
    let_restored_state_begin_its_life_anew: ("expired", 102),
    leave_bundles_out_of_snapshots: ("groups", 233),
    let_watermarks_run_ahead: ("aggregate", 88),
    answer_with_the_newest_version: ("temporal", 85),
    deal_changes_out_in_turn: ("projected", 90),
    let_barriers_overtake_on_pointwise_edges: ("", 26055),
}


# --- process table functions -----------------------------------------------------------------------------------------


def restore_no_timers() -> Any:
    def opened(original: Any, operator: Any) -> None:
        original(operator)
        operator._unnamed.clear()

    return around(ProcessTableOperator, "open", opened)


def restore_no_names_of_timers() -> Any:
    def opened(original: Any, operator: Any) -> None:
        original(operator)
        for timers in operator._timers.values():
            for name in [name for name in timers if isinstance(name, str)]:
                del timers[name]

    return around(ProcessTableOperator, "open", opened)


def store_no_state_after_timers() -> Any:
    def fire(original: Any, operator: Any, due: Any) -> int:
        entries = operator._entries
        operator._entries = [StateEntry(entry.load, lambda: None, entry.clear) for entry in entries]
        fired: int = original(operator, due)
        operator._entries = entries
        return fired

    return around(ProcessTableOperator, "_fire_some", fire)


def keep_the_timer_that_is_replaced() -> Any:
    def register_named(original: Any, operator: Any, name: str, time_ms: int) -> None:
        timers = operator._timers.get(operator._keyed.current_key, {})
        if name in timers:
            name = f"{name} again"
        original(operator, name, time_ms)

    return around(ProcessTableOperator, "register_named", register_named)


def clear_no_timers() -> Any:
    return mock.patch.object(ProcessTableOperator, "clear_timers", return_value=None)


def leave_waiting_rows_out_of_snapshots() -> Any:
    def snapshot_state(original: Any, operator: Any, checkpoint_id: int) -> Any:
        waiting, operator._waiting = operator._waiting, {}
        captured = original(operator, checkpoint_id)
        operator._waiting = waiting
        return captured

    return around(ProcessTableOperator, "snapshot_state", snapshot_state)


def mark_no_state_that_changes_in_place() -> Any:
    def opened(original: Any, operator: Any) -> list[StateEntry]:
        entries: list[StateEntry] = original(operator)
        for entry, state in zip(entries, operator._call.user.signature.states, strict=True):
            if state.kind not in (LIST, MAP):
                entry.store = _unmarked(operator, state.name, entry.store)
        return entries

    return around(ProcessTableOperator, "_open_states", opened)


def _unmarked(operator: Any, name: str, store: Any) -> Any:
    table = operator.context.keyed.table(name)

    def call() -> None:
        key = operator.context.keyed.current_key
        is_new = key not in table.entries(None)
        store()
        if not is_new:
            table.changed(None).discard(key)

    return call


def forget_what_kinds_rows_are_of() -> Any:
    def declared(original: Any, operator: Any, table: Any, rows: Any, kinds: bytes | None) -> Any:
        return original(operator, table, rows, None)

    return around(ProcessTableOperator, "_as_declared", declared)


#: The same for worlds of process table functions.
PROCESS_MUTANTS: dict[Mutant, tuple[str, int]] = {
    restore_no_timers: ("timers", 1),
    restore_no_names_of_timers: ("", 1),
    store_no_state_after_timers: ("timers", 1),
    keep_the_timer_that_is_replaced: ("timers", 1),
    clear_no_timers: ("order", 1),
    leave_waiting_rows_out_of_snapshots: ("order", 1),
    mark_no_state_that_changes_in_place: ("", 1),
    forget_what_kinds_rows_are_of: ("changelog", 1),
    leave_key_groups_with_the_old_subtask: ("", 1),
}
