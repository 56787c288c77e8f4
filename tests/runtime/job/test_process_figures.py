"""What workers' processes use goes from their heartbeats into the view of the job (A1, E2)."""

from __future__ import annotations

from tests.runtime.job.master_rig import running

from penstock.runtime.job.view import WorkerView
from penstock.runtime.protocol import Heartbeat, ProcessFigures

FIGURES = ProcessFigures(cpu_load=0.5, resident_bytes=7)


def test_the_view_has_the_last_figures_of_each_worker_and_when_it_was_heard() -> None:
    rig = running(conf={"execution.checkpointing.interval": None})
    rig.advance(500)
    rig.master.on_message(Heartbeat("w1", process=FIGURES))
    rig.advance(100)
    now_ms = rig.master.view().now_ms

    def views() -> dict[str, WorkerView]:
        return {worker.worker_id: worker for worker in rig.master.view().workers}

    assert (views()["w1"].process, views()["w1"].heard_ms) == (FIGURES, now_ms - 100)
    assert (views()["w2"].process, views()["w2"].heard_ms) == (None, now_ms - 600)
    assert views()["w1"].data_address != views()["w2"].data_address
    rig.master.on_message(Heartbeat("w1"))  # it cannot tell just now
    assert (views()["w1"].process, views()["w1"].heard_ms) == (FIGURES, now_ms)
