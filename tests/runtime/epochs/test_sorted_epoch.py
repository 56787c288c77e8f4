"""One task of a back-fill: sorted rows, one watermark behind them, and a token that says what was sent (I1, G8)."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import pairwise
from typing import Any

import cloudpickle
import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.base.time import Duration
from penstock.datastream import ProcessJoinFunction
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor
from penstock.runtime.batch.exchange import IDLE_PLACE, SILENT_PLACE, WATERMARK_PLACE, Consumer, Rows
from penstock.runtime.epochs.coordinator import EpochAnswer, EpochVertex, EpochWork
from penstock.runtime.epochs.task import ANSWER, EpochTask
from penstock.runtime.operators.keyed.interval_join import IntervalJoinOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.window.aligned import AlignedWindowOperator
from penstock.runtime.operators.window.base import ReducingContents
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.runtime.task.operator_chain import ChainedOperator, OutEdge, VertexProgram
from penstock.runtime.windowing import TumblingEventTimeWindows
from penstock.state.backend import HeapBackends
from penstock.storage.file_store import FileCheckpointStore
from penstock.testing import VirtualClock

IN, OUT = 0, 9
WATERMARK = 1_000
KEYS = 50


def first(value: Any) -> Any:
    return value[0]


def add(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


class Remember(KeyedProcessFunction):
    """Keeps the times of a key, and gives those so far when event time has come to each."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> None:
        assert ctx.timer_service().current_watermark() == MIN_TIMESTAMP
        self.seen.add(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timer_service().current_watermark() == WATERMARK
        yield ctx.get_current_key(), timestamp, list(self.seen.get())


class Nothing(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> None: ...


def windows(key_selector: Any) -> AlignedWindowOperator:
    assigner = TumblingEventTimeWindows.of(Duration.of_millis(10))
    return AlignedWindowOperator(key_selector, assigner, ReducingContents(add))


def task(factory: Any) -> EpochTask:
    program = VertexProgram(
        (ChainedOperator("op", "Op", partial(factory, key_selector=first), -1),),
        (OutEdge(OUT, 0, HashPartitioner(first), None, "next"),),
    )
    consumers = {OUT: Consumer(parallelism=2, max_parallelism=8, is_keyed=True)}
    vertex = EpochVertex(0, "job", "vertex", 1, 8, cloudpickle.dumps(program), {IN: 0}, consumers, True, True)
    store = FileCheckpointStore(None, "job", 1 << 20)
    return EpochTask(vertex, 0, EpochWork(1, None, {}, False), VirtualClock(), store, HeapBackends())


def rows(*of: tuple[int, int, Any]) -> Rows:
    """(place, time, value) each; the watermark is a value of bytes."""
    made = Rows()
    for number, (place, timestamp, value) in enumerate(of):
        payload = value if isinstance(value, bytes) else pickle.dumps(value, 5)
        for column, item in zip(made.columns(), (IN, 0, place, timestamp, number, payload), strict=True):
            column.append(item)
    return made


#: Three records of each key: two are due, the last is not.
ROWS = [
    (WATERMARK_PLACE, WATERMARK, b"one run"),
    *((key, time, (key, 1)) for key in range(KEYS) for time in (3, 8, 10_000 + key)),
]


def cut(places: list[int]) -> list[Rows]:
    borders = sorted({0, *places, len(ROWS)})
    return [rows(*ROWS[i:j]) for i, j in pairwise(borders)]


def output(made: EpochTask, parts: list[Rows]) -> tuple[list[tuple[Any, Any]], EpochAnswer]:
    """What the task sends, and its answer."""
    sent: list[tuple[Any, Any]] = []
    answers: list[EpochAnswer] = []
    for part in made.run(parts):
        for edge, place, timestamp, payload in zip(
            part.edges, part.places, part.timestamps, part.payloads, strict=True
        ):
            if edge == ANSWER:
                answers.append(pickle.loads(payload))
            elif edge >= 0 and place > WATERMARK_PLACE:
                sent.append((timestamp, pickle.loads(payload)))
    (answer,) = answers
    return sent, answer


@given(st.lists(st.integers(1, len(ROWS) - 1), max_size=8))
def test_what_is_due_fires_once_for_each_key_however_the_rows_are_cut(cuts: list[int]) -> None:
    """I1: when a key's records have all come, and over all of its state; what is not due stays."""
    sent, answer = output(task(partial(KeyedProcessOperator, Remember())), cut(cuts))
    expected = [(at, (key, at, [3, 8, 10_000 + key])) for key in range(KEYS) for at in (8, 13)]
    assert sorted(sent, key=repr) == sorted(expected, key=repr)
    assert answer.watermarks[0] == WATERMARK
    assert answer.used == {b"one run"}
    assert set(answer.operators["op"].keyed) == {"seen", "_penstock_timers_event"}


@given(st.lists(st.integers(1, len(ROWS) - 1), max_size=8))
def test_windows_of_the_past_are_not_held_for_all_keys_at_a_time(cuts: list[int]) -> None:
    """I1: what is held is what stays, and the windows of the keys of the last rows."""
    made = task(windows)
    held = []

    def parts() -> Any:
        for part in cut(cuts):
            yield part
            panes = made._chain.contexts[0].keyed.table("_penstock_window").panes
            held.append(len(panes.get((0, 10), ())))

    sent, _ = output(made, parts())
    assert sorted(value for _, value in sent) == [(key, 2) for key in range(KEYS)]
    longest = max(j - i for i, j in pairwise(sorted({0, *cuts, len(ROWS)})))
    assert max(held) <= longest // 3 + 2


def test_an_interval_join_forgets_what_is_past_with_its_keys() -> None:
    """I1: as the live join does."""
    held: list[int] = []

    def parts() -> Any:
        for part in cut([*range(3, len(ROWS), 3)]):
            yield part
            panes = made._chain.contexts[0].keyed.table("_penstock_interval_left").panes
            past = [pane for (start, _), pane in panes.items() if start < WATERMARK]
            held.append(sum(len(records) for pane in past for records in pane.values()))

    made = task(lambda key_selector: IntervalJoinOperator(Nothing(), (key_selector, key_selector), -5, 5))
    output(made, parts())
    assert max(held) <= 3


def test_a_run_that_sends_the_same_has_the_same_token_and_no_other_has() -> None:
    """G8: however its input was cut; another record, time, order or place makes another token."""
    whole = output(task(windows), cut([]))[1].token
    assert output(task(windows), cut([5, 70]))[1].token == whole
    for other in (
        [*ROWS[:-1], (KEYS - 1, 20, (KEYS - 1, 1))],
        [(WATERMARK_PLACE, WATERMARK - 1, b"one run"), *ROWS[1:]],
        [*ROWS, (KEYS, 3, (KEYS, 1))],
        ROWS[:4],
    ):
        assert output(task(windows), [rows(*other)])[1].token != whole


@pytest.mark.parametrize(("place", "is_idle"), [(WATERMARK_PLACE, False), (IDLE_PLACE, True), (SILENT_PLACE, True)])
def test_a_task_whose_producers_are_idle_or_silent_is_idle(place: int, is_idle: bool) -> None:
    """C2: event time does not wait for it in the next epoch."""
    _, answer = output(task(windows), [rows((place, WATERMARK, b"one run"))])
    assert answer.is_idle is is_idle
