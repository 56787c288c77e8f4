"""Metrics as Flink's clients ask for them: names, values as text, and figures over many."""

from __future__ import annotations

from collections.abc import Mapping

from tests.server.rest.rig import COUNT, JOB, Handle, a_view, serving

from penstock.server.rest.calls.context import NoMetrics

VERTEX = f"/jobs/{JOB}/vertices/{COUNT}"


class Store(NoMetrics):
    """A few metrics."""

    def job(self, job_id: str) -> Mapping[str, str | float]:
        return {"numRestarts": 3, "uptime": 60_300, "lastCheckpointExternalPath": "file:///c"}

    def taskmanager(self, tm_id: str) -> Mapping[str, str | float]:
        return {"Status.JVM.CPU.Load": 0.25} if tm_id == "worker-1-aaaa" else {}

    def vertex(self, job_id: str, vertex_id: str) -> Mapping[str, str | float]:
        return {"0.numRecordsIn": 10, "1.numRecordsIn": 20}

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Mapping[str, str | float]:
        return {"numRecordsIn": 10 * (subtask + 1), "isBackPressured": "false", "skewed": float("nan")}


def test_without_get_there_are_names_and_with_it_values_as_text() -> None:
    with serving(Handle(a_view()), context={"metrics": Store()}) as client:
        names = client.get(f"/jobs/{JOB}/metrics").json
        assert names == [{"id": "lastCheckpointExternalPath"}, {"id": "numRestarts"}, {"id": "uptime"}]
        values = client.get(f"/jobs/{JOB}/metrics?get=numRestarts,nothing").json
        assert values == [{"id": "numRestarts", "value": "3"}]
        assert client.get(f"{VERTEX}/metrics?get=1.numRecordsIn").json == [{"id": "1.numRecordsIn", "value": "20"}]
        nan = client.get(f"{VERTEX}/subtasks/0/metrics?get=skewed").json
        assert nan == [{"id": "skewed", "value": "NaN"}]
        assert client.get(f"{VERTEX}/subtasks/7/metrics").json == []
        load = client.get("/taskmanagers/worker-1-aaaa/metrics?get=Status.JVM.CPU.Load").json
        assert load == [{"id": "Status.JVM.CPU.Load", "value": "0.25"}]


def test_what_is_unknown_has_no_metrics() -> None:
    with serving(Handle(a_view()), context={"metrics": Store()}) as client:
        for path in (f"/jobs/{'f' * 32}", "/taskmanagers/nobody", f"/jobs/{JOB}/vertices/{'f' * 32}"):
            answer = client.get(f"{path}/metrics")
            assert (answer.code, answer.json) == (200, [])


def test_figures_over_subtasks_are_numbers() -> None:
    with serving(Handle(a_view()), context={"metrics": Store()}) as client:
        path = f"{VERTEX}/subtasks/metrics"
        (all_of_them,) = client.get(f"{path}?get=numRecordsIn").json
        expected = {"id": "numRecordsIn", "min": 10.0, "max": 20.0, "avg": 15.0, "sum": 30.0}
        assert {key: value for key, value in all_of_them.items() if key != "skew"} == expected
        assert round(all_of_them["skew"], 3) == 33.333
        (chosen,) = client.get(f"{path}?get=numRecordsIn&agg=min,max&subtasks=1-5").json
        assert chosen == {"id": "numRecordsIn", "min": 20.0, "max": 20.0}
        for none in ("", ",", "%20"):
            assert client.get(f"{path}?get=numRecordsIn&agg={none}").json == [all_of_them]
        (nan,) = client.get(f"{path}?get=skewed&agg=max").json
        assert nan == {"id": "skewed", "max": "NaN"}
        assert client.get(f"{path}?get=isBackPressured").json == []
        assert client.get(f"{path}?agg=mode").code == 400
        assert client.get(f"{path}?subtasks=a-b").code == 400


def test_figures_over_jobs_and_workers_may_be_of_some() -> None:
    with serving(Handle(a_view()), context={"metrics": Store()}) as client:
        assert client.get("/jobs/metrics?get=numRestarts&agg=sum").json == [{"id": "numRestarts", "sum": 3.0}]
        assert client.get(f"/jobs/metrics?get=numRestarts&agg=sum&jobs={'f' * 32}").json == []
        assert {"id": "Status.JVM.CPU.Load"} in client.get("/taskmanagers/metrics").json
