"""What insight answers without asking a worker."""

from __future__ import annotations

import pytest
from tests.server.metrics.views import JOB_ID, WINDOW, Watched, view_at

from penstock.server.dispatcher import NotThereError, WorkerInsight


def test_a_job_in_steps_has_a_flame_graph_without_samples() -> None:
    watched = Watched(view_at(10, mode="BATCH", workers=()))
    job = watched.dispatcher.job(JOB_ID)
    assert job is not None
    graph = WorkerInsight().flame_graph(job, WINDOW.operator_id)
    assert graph is not None
    assert graph.end_ms == watched.handle.view.now_ms
    assert graph.root.to_dict() == {"name": "root", "value": 0, "children": []}
    with pytest.raises(NotThereError, match="no vertex"):
        WorkerInsight().flame_graph(job, "f" * 32)
