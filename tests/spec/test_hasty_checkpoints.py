"""Checkpoints that begin as soon as the last one is complete do not hold the records up (G5, G6). Time is virtual.

In these jobs each turn of the driver takes time. So a checkpoint takes longer than the interval, and all tasks have
barriers and messages in most of their steps.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.runtime.checkpoint import coordinator
from penstock.testing import VirtualClock

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

RECORDS, KEYS = 300, 10
TURN_MS = 5
#: Without checkpoints the job takes 100 turns.
TURNS_MAX = 1_500


class SlowJob(VirtualJob):
    """Each turn takes `TURN_MS`."""

    def _turn(self) -> None:
        assert isinstance(self._clock, VirtualClock)
        self._clock.advance(TURN_MS)
        if self.turns > TURNS_MAX:
            pytest.fail(f"{len(LEDGER.get('out', []))} records are out after {self.turns} turns")
        super()._turn()


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def run(parallelism: int, **options: Any) -> VirtualJob:
    env = environment(parallelism, **{"penstock.source.batch-records": 2, **options})
    source = DataGeneratorSource(lambda index: index, RECORDS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counts = numbers.map(lambda n: (n % KEYS, 1)).key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.uid("counts").rebalance().map(str).uid("text").sink_to(LedgerSink("out")).uid("sink")
    job = SlowJob(env)
    assert job.run() is JobStatus.FINISHED, job.failure()
    assert sorted(LEDGER["out"]) == sorted(str((key, n)) for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1))
    return job


@pytest.mark.parametrize("interval", ["1 ms", "20 ms"])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["unaligned", "timed", "aligned"])
def test_records_get_on_whatever_the_interval(mode: str, parallelism: int, interval: str) -> None:
    """G5, G6."""
    options = {"execution.checkpointing.interval": interval}
    options["execution.checkpointing.unaligned.enabled"] = str(mode != "aligned")
    options["execution.checkpointing.aligned-checkpoint-timeout"] = "1 ms" if mode == "timed" else "0 ms"
    assert len(run(parallelism, **options).checkpoints) > 1


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_steps_for_records_alone_are_enough(parallelism: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: barriers and messages leave a task some steps for input, even without a pause between checkpoints."""
    monkeypatch.setattr(coordinator, "PAUSE_MS_MAX", 0)
    options = {"execution.checkpointing.unaligned.enabled": "true", "execution.checkpointing.interval": "1 ms"}
    run(parallelism, **options)


def test_a_short_interval_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """G6."""
    logging.getLogger("penstock").propagate = True
    env = environment()
    with caplog.at_level(logging.WARNING):
        env.enable_checkpointing(10)
        assert not caplog.messages
        env.enable_checkpointing(1)
    assert "checkpoints every 1 ms leave records little time" in caplog.text
