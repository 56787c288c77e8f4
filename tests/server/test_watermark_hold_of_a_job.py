"""A job that runs names the source that holds a watermark back (C2)."""

from __future__ import annotations

import threading
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.time import Duration, Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.server.rest.handlers.vertices import watermark_holds


def test_a_join_waits_for_the_source_that_is_silent() -> None:
    options = {"execution.target": "local", "parallelism.default": 2}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1)).with_timestamp_assigner(
        lambda value, _: value
    )

    def stream(name: str, rate: float) -> Any:
        return env.from_source(DataGeneratorSource(int, None, rate_per_second=rate), strategy, name)

    orders, payments = stream("orders", 2_000), stream("payments", 0.002)
    joined = orders.join(payments).where(lambda value: value).equal_to(lambda value: value)
    windows = joined.window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
    windows.apply(lambda one, other: (one, other)).name("both").print()
    job = env.execute_async("a join")
    try:
        while not (holds := watermark_holds(job.get_view().result()).holds):
            threading.Event().wait(0.1)
    finally:
        job.end()
    (hold,) = holds
    assert hold.origin is not None
    assert hold.origin.name.startswith("payments")
    inputs = {one.name.partition(" ")[0]: (one.holds, one.idle) for one in hold.inputs}
    assert inputs == {"orders": (False, False), "payments": (True, False)}
