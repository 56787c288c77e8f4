"""Side outputs that are read and that nobody writes: refused where an operator has none, told at the end otherwise."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import MisuseError
from penstock.base.time import Time
from penstock.common import OutputTag, Types, WatermarkStrategy
from penstock.datastream.functions import ProcessFunction
from penstock.datastream.window import TumblingEventTimeWindows

WRITTEN, MISSPELT, LATE = OutputTag("odd", Types.INT()), OutputTag("od", Types.INT()), OutputTag("late", Types.INT())
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value)


class Sorts(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (WRITTEN, value) if value % 2 else value


MODES = ["STREAMING", "BATCH", "MICRO_BATCH"]


def told(env: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.set_level(logging.INFO, "penstock")
    env.execute()
    return [r.getMessage() for r in caplog.records if "side output" in r.getMessage()]


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_tag_that_nobody_wrote_to_is_told_at_the_end(
    mode: str, chained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A1: a misspelt tag gives an empty stream, and a line that names it and the operator; others give none."""
    env = local_environment(2, execution__runtime_mode=mode)
    if not chained:
        env.disable_operator_chaining()
    sorted_ = env.from_collection(range(10)).process(Sorts()).name("sorts")
    sorted_.get_side_output(MISSPELT).print()
    sorted_.get_side_output(WRITTEN).print()
    (line,) = told(env, caplog)
    assert "the program reads side output 'od' of operator 'sorts', but it received no records" in line


def test_side_outputs_for_late_records_are_empty_as_a_rule(caplog: pytest.LogCaptureFixture) -> None:
    """C1: nothing is said of those, for no late record is good news."""
    env = local_environment()
    times = env.from_collection(range(10)).assign_timestamps_and_watermarks(BY_TIME)
    windows = times.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    windows.side_output_late_data(LATE).reduce(max).get_side_output(LATE).print()
    assert told(env, caplog) == []


WITHOUT: dict[str, Any] = {
    "Map": lambda s: s.map(abs),
    "Filter": lambda s: s.filter(abs),
    "Timestamps/Watermarks": lambda s: s.assign_timestamps_and_watermarks(BY_TIME),
    "Keyed Reduce": lambda s: s.key_by(abs).reduce(max),
    "Keyed Sum": lambda s: s.key_by(abs).sum(0),
    "Projection": lambda s: s.map(lambda v: (v,)).project(0),
    "Select": lambda s: s.map(lambda v: {"a": v}).select("a"),
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_an_operator_that_has_no_side_outputs_is_refused(kind: str) -> None:
    """A1: known when the program is built."""
    stream = WITHOUT[kind](local_environment().from_collection([1])).name("mine")
    with pytest.raises(MisuseError, match=r"operator 'mine' \(" + kind + r"\) writes no side outputs.*process\(\)"):
        stream.get_side_output(WRITTEN)
