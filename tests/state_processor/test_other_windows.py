"""Windows of the general operator in savepoints: read as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.state_processor.programs import EVENTS, compute_time, environment, event, is_event, savepoint_behind, user_of

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.state import ListStateDescriptor
from penstock.datastream.window import CountTrigger, EventTimeSessionWindows, GlobalWindows, TumblingEventTimeWindows
from penstock.state_processor import SavepointReader

WIDTH_MS = 1_000_000


class Kept(ProcessWindowFunction):
    """Keeps the numbers of a window in its state when it fires, and gives the first of them."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        numbers = context.window_state().get_list_state(ListStateDescriptor("numbers"))
        numbers.update([e.number for e in elements])
        yield key, min(numbers)

    def clear(self, context: Any) -> None:
        context.window_state().get_list_state(ListStateDescriptor("numbers")).clear()


def build(env: Any, count: int | None = None) -> Any:
    source = DataGeneratorSource(event, count, 20_000.0, compute_time)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(source, strategy, "events").uid("source").set_parallelism(1)
    events = stream.filter(is_event).set_parallelism(1).key_by(user_of)
    timed = events.window(TumblingEventTimeWindows(WIDTH_MS)).trigger(CountTrigger(10))
    kept = timed.process(Kept()).uid("timed")
    counted = events.window(GlobalWindows()).trigger(CountTrigger(10**6)).reduce(max).uid("counted")
    counted.sink_to(CollectSink())
    sessions = events.window(EventTimeSessionWindows(WIDTH_MS)).trigger(CountTrigger(10**6)).reduce(max)
    sessions.uid("sessions").sink_to(CollectSink())
    return kept


@pytest.mark.parametrize("state_backend", ["hashmap", "rocksdb"])
def test_windows_are_read_from_savepoints(state_backend: str, tmp_path: Path) -> None:
    """H5, C1: open windows with their contents, whichever operator keeps them; state of windows as maps."""
    env = environment(2, **{"state.backend.type": state_backend})
    build(env).sink_to(CollectSink())
    job = env.execute_async("windows")
    try:
        reader = SavepointReader.read(savepoint_behind(job, tmp_path, len(EVENTS)))
    finally:
        job.end()
    numbers: dict[Any, list[int]] = {}
    for e in EVENTS:
        numbers.setdefault(e.user, []).append(e.number)

    timed = reader.read_window_state("timed").to_arrow().to_pylist()
    assert {(r["key"], r["window_start"], r["window_end"]) for r in timed} == {(u, 0, WIDTH_MS) for u in numbers}
    assert all([e["number"] for e in r["value"]] == numbers[r["key"]] for r in timed)
    for uid in ("counted", "sessions"):
        rows = reader.read_window_state(uid).to_arrow().to_pylist()
        assert {r["key"]: r["value"]["number"] for r in rows} == {u: n[-1] for u, n in numbers.items()}
    last_ms = {e.user: e.time_ms for e in EVENTS}
    assert {r["key"]: r["window_end"] - WIDTH_MS for r in rows} == last_ms
    (counted, *_) = reader.read_window_state("counted").to_arrow().to_pylist()
    assert counted["window_start"] is None
    kinds = {state.name: state.kind for state in reader.operator("timed").states}
    assert kinds["_penstock_window_slots"] == "window"
    assert kinds["window-state:numbers"] == kinds["trigger-state:count"] == "map"
    kept = reader.read_map_state("timed", "window-state:numbers").to_arrow().to_pylist()
    assert {r["key"]: r["value"] for r in kept} == {u: n[: len(n) // 10 * 10] for u, n in numbers.items()}
