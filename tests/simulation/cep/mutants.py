"""Planted bugs in the operator of patterns: each a patch at one place, applied for the length of a `with`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from tests.simulation.mutants_of_jobs import leave_key_groups_with_the_old_subtask
from tests.simulation.planting import Mutant, around

from penstock.runtime.operators.patterns.pattern_operator import PatternOperator
from penstock.runtime.operators.patterns.waiting import WaitingEvents
from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.patterns.memory import Memory

#: What is held of a key (`runtime.patterns.matcher`): the next number, partial matches, waiting matches, links, events.
NEXT, PARTIALS, _, LINKS, _ = range(5)


def _at_open(mutate: Callable[[Any], None]) -> Any:
    def opened(original: Any, operator: Any) -> None:
        original(operator)
        mutate(operator)

    return around(PatternOperator, "open", opened)


def _at_restore(mutate: Callable[[list[Any]], None]) -> Any:
    """Change what is held of each key when an operator is opened."""

    def change(operator: Any) -> None:
        for key in list(operator._memories):
            mutate(operator._memories[key])

    return _at_open(change)


class _Unsaved(dict[Any, Any]):
    """The events of partial matches, in no snapshot; one that is gone is said to be another one."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self._keyed = operator.context.keyed

    def __setitem__(self, number: int, event: Any) -> None:
        super().__setitem__((self._keyed.current_key, number), event)

    def __getitem__(self, number: int) -> Any:
        lost = next(iter(self.values()), None)
        return self.get((self._keyed.current_key, number), lost)

    def __delitem__(self, number: int) -> None:
        self.pop((self._keyed.current_key, number), None)


def leave_events_of_partial_matches_out_of_snapshots() -> Any:
    def keep_elsewhere(operator: Any) -> None:
        operator._events, operator._maps = _Unsaved(operator), None

    return _at_open(keep_elsewhere)


def restore_no_deadlines() -> Any:
    return _at_open(lambda operator: operator._deadlines.clear())


def set_no_further_deadline() -> Any:
    def expire(original: Any, operator: Any, *args: Any) -> None:
        with mock.patch.object(TimerQueue, "register", return_value=None):
            original(operator, *args)

    return around(PatternOperator, "_expire", expire)


def let_an_event_go_with_the_last_but_one_reference() -> Any:
    def drop(original: Any, memory: Any, number: int) -> None:
        counts = memory.counts
        if counts[number] == 2:
            counts[number] = 1
            memory.elsewhere[number] = next(iter(memory.elsewhere.values()))
        else:
            original(memory, number)

    return around(Memory, "_drop", drop)


def forget_the_order_of_events_of_one_time() -> Any:
    """Those that waited over a restore come in the order in which they came."""

    def init(original: Any, waiting: Any, table: Any, compare: Any) -> None:
        original(waiting, table, None if table.panes else compare)

    return around(WaitingEvents, "__init__", init)


def leave_events_that_wait_out_of_snapshots() -> Any:
    return around(WaitingEvents, "store", lambda original, waiting: None)


def keep_events_in_lists_that_are_stored() -> Any:
    """So that they come twice after a checkpoint."""

    def store(original: Any, waiting: Any) -> None:
        parts, listed = waiting._parts, waiting._listed
        original(waiting)
        waiting._parts, waiting._listed = parts, listed

    return around(WaitingEvents, "store", store)


def double_partial_matches_at_a_restore() -> Any:
    def double(held: list[Any]) -> None:
        for one in held[PARTIALS]:
            held[LINKS][one[1]][3] += 1
        held[PARTIALS] = [one for one in held[PARTIALS] for _ in range(2)]

    return _at_restore(double)


def number_events_anew_at_a_restore() -> Any:
    def begin_anew(held: list[Any]) -> None:
        held[NEXT] = 0

    return _at_restore(begin_anew)


def say_nothing_of_changed_keys() -> Any:
    """So that a snapshot that adds to the one before lacks them."""

    def mark_none(operator: Any) -> None:
        operator._mark = lambda namespace, keys: None

    return _at_open(mark_none)


#: Each mutant, and a seed from which on one finds it soon.
MUTANTS: dict[Mutant, int] = {
    leave_events_of_partial_matches_out_of_snapshots: 25,
    restore_no_deadlines: 25,
    set_no_further_deadline: 13,
    let_an_event_go_with_the_last_but_one_reference: 5,
    forget_the_order_of_events_of_one_time: 58,
    leave_events_that_wait_out_of_snapshots: 5,
    keep_events_in_lists_that_are_stored: 9,
    double_partial_matches_at_a_restore: 197,
    number_events_anew_at_a_restore: 35,
    say_nothing_of_changed_keys: 25,
    leave_key_groups_with_the_old_subtask: 38,
}
