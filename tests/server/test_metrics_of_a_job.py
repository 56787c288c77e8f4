"""The metrics of a job that really runs: those of the documents, of the dashboard, of the alerts, and Flink's (A1).

The job has a source, an operator with keyed state, a window, a sink, and checkpoints.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from penstock.base.configuration import Configuration
from penstock.base.time import Duration, Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.metrics.scopes import Scope, of_operator
from penstock.server.reporters import files
from penstock.server.reporters.prometheus import families

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
#: Facts about Flink, which are beside a checkout and no part of it.
FLINK = ROOT.parent / "shared" / "flink" / "flink_metrics.json"
PATIENCE_SECONDS = 60


class SourceWithALag(DataGeneratorSource):
    """Says how far behind it is, by the name that Kafka's reader has for it."""

    def create_reader(self, context):
        context.gauge("pendingRecords", lambda: 7)
        return super().create_reader(context)


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_metrics_group().add_group("numbers").counter("seen")

    def process_element(self, value, ctx):
        self.seen.inc()
        yield value


@dataclass
class Seen:
    """What a job shows: lists of names by scope, and samples for Prometheus by name."""

    jobmanager: dict[str, Any]
    taskmanager: dict[str, Any]
    job: dict[str, Any]
    #: of each vertex
    vertices: list[dict[str, Any]]
    samples: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    #: names without scopes
    names: dict[Scope, set[str]] = field(default_factory=dict)


def started(directory: Path) -> tuple[Any, Any]:
    options = {
        "execution.target": "local",
        "parallelism.default": 2,
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(directory),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10)).with_timestamp_assigner(
        lambda value, _: value
    )
    numbers = env.from_source(SourceWithALag(int, None, rate_per_second=2_000), strategy, "numbers").uid("numbers")
    counted = numbers.key_by(lambda number: number % 3).process(Count()).uid("count")
    windows = counted.key_by(lambda number: number % 3).window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
    windows.reduce(max).uid("greatest").print().uid("out")
    graph = env.job_graph("Demo job")
    return env.execute_async("Demo job"), graph


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    job, graph = started(tmp_path_factory.mktemp("checkpoints"))
    dispatcher = Dispatcher()
    dispatcher.add(DispatchedJob(job, graph, Configuration()))
    store, job_id = MetricStore(dispatcher), str(job.get_job_id())
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while float(store.job(job_id).get("numberOfCompletedCheckpoints", 0)) < 2 or not all(
            store.subtask(job_id, vertex.vertex_id, subtask).get(name, 0)
            for view in store.views()
            for number, vertex in enumerate(view.vertices)
            for subtask in range(2)
            for name in ("accumulateIdleTimeMs", *(() if number else ("numRecordsOut",)))
        ):
            assert time.monotonic() < deadline, "the job has no figures yet"
            time.sleep(0.05)
        view = store.views()[0]
        found = Seen(
            store.jobmanager(),
            store.taskmanager(view.workers[0].worker_id),
            store.job(job_id),
            [store.vertex(job_id, vertex.vertex_id) for vertex in view.vertices],
        )
        scoped = list(store.scoped())
    finally:
        job.end()
        store.close()
    for family in families(scoped):
        for sample in family.samples:
            found.samples.setdefault(sample.name, []).append(sample.labels)
    for one in scoped:
        found.names.setdefault(one.scope, set()).update(one.values)
    return found


def documented(heading: str, column: int = 1) -> set[str]:
    """The names in a column of the table below a heading of the page."""
    table = re.split("^##+ ", PAGE.split(f"### {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = [row.split(" | ")[column - 1] for row in re.findall(r"^\| (.+) \|$", table, re.MULTILINE)]
    return {name for row in rows for name in re.findall("`([^`]+)`", row)}


def test_the_page_names_every_metric_and_no_other(seen: Seen) -> None:
    processes = documented("Of processes: the driver, and each worker")
    assert seen.names[Scope.JOB_MANAGER] == processes | documented("Of the driver")
    assert seen.names[Scope.TASK_MANAGER] == processes | documented("Of workers")
    assert seen.names[Scope.JOB] == documented("Of a job")
    assert seen.names[Scope.TASK] == documented("Of subtasks")
    own = {"pendingRecords", "numbers.seen"}
    # Those of tables that leave rows out, and of jobs that drop timers; their own tests look at them.
    others = {"null_time_records", "numTimersDropped"}
    assert seen.names[Scope.OPERATOR] - own == documented("Of operators") - others


def test_what_a_function_counts_is_there(seen: Seen) -> None:
    names = {name for vertex in seen.vertices for name in vertex}
    assert any(re.fullmatch(r"1\..+\.numbers\.seen", name) for name in names)
    assert seen.samples["flink_taskmanager_job_task_operator_numbers_seen"]


def test_records_are_counted_by_task_and_by_operator(seen: Seen) -> None:
    source = seen.vertices[0]
    assert source["0.numRecordsOut"] > 0
    assert source[f"0.{of_operator('numbers', 'numRecordsOut')}"] == source["0.numRecordsOut"]
    assert source["0.numRecordsOutPerSecond"] > 0
    for vertex in seen.vertices:
        shares = [vertex[f"1.{what}TimeMsPerSecond"] for what in ("busy", "backPressured", "idle")]
        assert sum(shares) == pytest.approx(1000)


def test_alerts_and_dashboard_name_metrics_that_there_are(seen: Seen) -> None:
    rules = yaml.safe_load((files.directory() / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((files.directory() / "grafana-dashboard.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    expressions = [rule["expr"] for rule in alerts] + targets + variables
    named = {name for expression in expressions for name in re.findall(r"\bflink_\w+", expression)}
    assert len(named) > 20
    assert named - set(seen.samples) == set()
    labels = {label for label in seen.samples for label in seen.samples[label][0]}
    for expression in expressions:
        for group in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
            assert set(re.split(", *", group)) <= labels
        assert expression.count("(") == expression.count(")")
        assert re.search(r"\bflink_\w+", expression)


def test_alerts_are_rules_of_prometheus() -> None:
    rules = yaml.safe_load((files.directory() / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    names = [rule["alert"] for rule in alerts]
    assert len(set(names)) == len(names)
    for rule in alerts:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert "summary" in rule["annotations"]


def test_the_dashboard_is_one_of_grafana() -> None:
    dashboard = json.loads((files.directory() / "grafana-dashboard.json").read_text())
    assert isinstance(dashboard["schemaVersion"], int)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert all(x < 24 for x, _ in cells)
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] != "row":
            assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C"][: len(panel["targets"])]
            assert all(target["legendFormat"] for target in panel["targets"])


def test_prometheus_reads_what_is_written(seen: Seen) -> None:
    text = "".join(f"{name} 1\n" for name in seen.samples)
    assert {family.name for family in text_string_to_metric_families(text)} == set(seen.samples)


def missing(seen: Seen, tier: int) -> tuple[list[str], int]:
    """Flink's metrics of that tier that the job lacks, by scope and name, and how many there are."""
    lacks, count = [], 0
    lists = {"jobmanager": [seen.jobmanager], "taskmanager": [seen.taskmanager], "job": [seen.job]}
    lists["task"] = lists["operator"] = seen.vertices
    for metric in json.loads(FLINK.read_text())["metrics"]:
        rest = metric.get("rest")
        if metric["tier"] != tier or not rest:
            continue
        for scope in filter(None, (rest["scope"], rest.get("also"))):
            found = [any(re.fullmatch(rest["pattern"], name) for name in listed) for listed in lists[scope]]
            count += 1
            if not (any(found) if rest.get("some") else all(found)):
                lacks.append(f"{scope}: {metric['name']}")
    return lacks, count


@pytest.mark.skipif(not FLINK.exists(), reason="the facts about Flink are not beside this checkout")
def test_flinks_names_are_there(seen: Seen) -> None:
    for tier in (1, 2, 3):
        lacks, count = missing(seen, tier)
        print(f"tier {tier}:", count - len(lacks), "of", count, lacks)
        assert count > 20
        assert lacks == []


@pytest.mark.skipif(not FLINK.exists(), reason="the facts about Flink are not beside this checkout")
def test_the_page_says_of_each_of_flinks_metrics_that_it_is_there_or_why_not(seen: Seen) -> None:
    there = (
        {name for names in seen.names.values() for name in names}
        | documented("How long access to state takes", 2)
        | {"latency"}
    )
    table = PAGE.split("## What is left out\n")[1]
    named = {name for row in re.findall(r"^\| (.+?) \|", table, re.MULTILINE) for name in re.findall("`([^`]+)`", row)}
    unsaid = []
    for metric in json.loads(FLINK.read_text())["metrics"]:
        name = metric["name"].replace("<Collector/All>", "All").replace("<jobStatus>", "created")
        name = "latency" if name.endswith(".latency") else name
        full = ".".join(filter(None, (metric.get("infix"), name)))
        is_left_out = any(fnmatch(full, pattern) for pattern in named)
        if metric["tier"] < 3 and is_left_out == (full in there):
            unsaid.append(full)
    assert unsaid == []


@pytest.mark.skipif(not FLINK.exists(), reason="the facts about Flink are not beside this checkout")
def test_flinks_names_and_labels_are_there_for_prometheus(seen: Seen) -> None:
    facts = json.loads(FLINK.read_text())
    lacks, count = [], 0
    for metric in facts["metrics"]:
        for name in metric.get("prometheus") or ():
            parts = ("operator", "task", "job", "taskmanager", "jobmanager")
            scope = next(part for part in parts if part in name.split("_"))
            count += 1
            labels = set(facts["$prometheus_labels"][scope])
            if name not in seen.samples or not labels <= seen.samples[name][0].keys():
                lacks.append(name)
    print("prometheus:", count - len(lacks), "of", count, lacks)
    assert lacks == []
