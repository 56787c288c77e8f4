"""The timer queue against a naive model."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import rocks

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.state.backend import StateTable
from penstock.state.errors import StateError
from penstock.state.states import NO_KEY


@contextmanager
def heap_table() -> Iterator[Any]:
    yield StateTable("timers")


@contextmanager
def rocks_table() -> Iterator[Any]:
    with rocks() as backend:
        yield backend.table("timers")


BACKENDS = pytest.mark.parametrize("table_of", [heap_table, rocks_table], ids=["heap", "rocksdb"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["register", "delete"]), st.integers(0, 10), st.sampled_from("abc")),
        st.tuples(st.just("fire"), st.integers(0, 10)),
        st.just(("reopen",)),
    ),
    max_size=30,
)


def note(fired, time, item):
    fired.append((time, item))


@BACKENDS
@settings(deadline=None, max_examples=300)
@given(steps=STEPS)
def test_queue_against_model(table_of, steps):
    """A1: the queue is a set of (time, item), fired in order of time, also when it is made anew over its table."""
    with table_of() as table:
        check(table, steps)


def check(table, steps):
    queue = TimerQueue(table)
    due: set = set()
    for step in steps:
        fired: list = []
        if step[0] == "register":
            queue.register(*step[1:])
            due.add(step[1:])
        elif step[0] == "delete":
            queue.delete(*step[1:])
            due.discard(step[1:])
        elif step[0] == "fire":
            assert sorted(queue.peek(step[1])) == sorted(t for t in due if t[0] <= step[1])
            wanted = {t for t in due if t[0] <= step[1]}
            due -= wanted
            fire = partial(note, fired)
            assert queue.fire(step[1], fire) == len(wanted)
            assert sorted(fired) == sorted(wanted)
            assert [t for t, _ in fired] == sorted(t for t, _ in wanted)
        else:
            if table.settle is not None:
                table.settle()
            queue = TimerQueue(table)
        assert len(queue) == len(due)
        assert queue.next_timestamp() == min((t for t, _ in due), default=None)


@BACKENDS
def test_nothing_is_left_of_what_fired_or_was_deleted(table_of):
    """A1: fired and deleted timers leave no empty bucket in the state once their time has been looked at."""
    with table_of() as table:
        queue = TimerQueue(table)
        for time in range(5):
            queue.register(time, "a")
        queue.delete(4, "a")
        queue.fire(3, lambda time, item: None)
        assert queue.next_timestamp() is None
        assert table.panes == {}


def test_an_earlier_timer_set_while_firing_comes_before_later_ones():
    """A1: timers fire in order of time: one that is set while firing, and is earlier, comes before all later ones."""
    queue = TimerQueue(StateTable("timers"))
    for item in "ab":
        queue.register(10, item)
    queue.register(20, "c")
    fired = []

    def on_timer(time, item):
        fired.append((time, item))
        if item == "a":
            queue.register(15, "d")

    queue.fire(100, on_timer)
    assert fired == [(10, "a"), (10, "b"), (15, "d"), (20, "c")]


@BACKENDS
def test_a_timer_needs_a_key(table_of):
    """A1: one that is set while no key is current is an error at once, alone at its time or not."""
    with table_of() as table:
        queue = TimerQueue(table)
        queue.register(1, "a")
        for time in (1, 2):
            with pytest.raises(StateError, match="no key is current"):
                queue.register(time, NO_KEY)
        assert list(queue.due(10)) == [(1, "a")]
