"""The timer queue against a naive model."""

from functools import partial

import hypothesis.strategies as st
from hypothesis import given, settings

from penstock.core.task.timers import TimerQueue
from penstock.state.table import StateTable

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


@settings(derandomize=True, deadline=None, max_examples=300)
@given(STEPS)
def test_queue_against_model(steps):
    """A1: the queue is a set of (time, item), fired in order of time, also when it is made anew over its table."""
    table = StateTable("timers")
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
            wanted = {t for t in due if t[0] <= step[1]}
            due -= wanted
            fire = partial(note, fired)
            assert queue.fire(step[1], fire) == bool(wanted)
            assert sorted(fired) == sorted(wanted)
            assert [t for t, _ in fired] == sorted(t for t, _ in wanted)
        else:
            queue = TimerQueue(table)
        assert len(queue) == len(due)
        assert queue.next_timestamp() == min((t for t, _ in due), default=None)


def test_nothing_is_left_of_what_fired_or_was_deleted():
    """A1: fired and deleted timers leave no empty bucket in the state once their time has been looked at."""
    table = StateTable("timers")
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
