"""The page of a job that runs: no mock, but the server that a job starts (issue 19, item 4)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.server.page.browser import patient

from penstock.base.configuration import Configuration
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.drivers.running_job import RunningJob
from penstock.server.attachment import dispatcher
from penstock.server.rest.messages.vertices import taskmanager_id
from penstock.server.rest.server import serve, servers

Opens = Callable[[RunningJob], Page]
#: Off where Penstock starts Spark.
SPARK_UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


def start(target: str, folder: Path, parallelism: int, more: dict[str, str] | None = None) -> RunningJob:
    """Counts readings by device in windows of a second. A file `poison` makes a reading that fails it, once."""
    values = {
        "execution.target": target,
        "parallelism.default": str(parallelism),
        "rest.port": "0",
        "pipeline.name": "Readings by device",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        "execution.checkpointing.interval": "500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "10",
        "restart-strategy.fixed-delay.delay": "200 ms",
    }
    poison = folder / "poison"

    def parse(number: int) -> tuple[int, int]:
        reading = str(number)
        if number % 100 == 0 and poison.exists():
            poison.unlink(missing_ok=True)  # another subtask may have been quicker
            reading = "unreadable"
        return int(reading) % 7, int(time.time() * 1000)

    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(values | (more or {})))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(200)).with_timestamp_assigner(
        lambda pair, _: pair[1]
    )
    source = DataGeneratorSource(lambda index: index, None, rate_per_second=500)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "readings").uid("readings")
    pairs = numbers.map(parse).name("parse").assign_timestamps_and_watermarks(strategy)
    windows = pairs.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(Duration.of_seconds(1)))
    windows.reduce(lambda one, _: one).name("by device").uid("by device").filter(lambda _: False).print().uid("out")
    return env.execute_async()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RunningJob]:
    with ended(start("local", tmp_path, 2)) as job:
        yield job


@contextmanager
def ended(job: RunningJob) -> Iterator[RunningJob]:
    try:
        yield job
    finally:
        job.end()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opens]:
    """Opens the page of a job; an error in it, or an answer that is one, fails the test."""
    faults: list[str] = []
    contexts = []

    def open_it(job: RunningJob) -> Page:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        contexts.append(context)
        page = patient(context.new_page())
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("response", lambda answer: faults.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{servers[-1].url}/#/jobs/{job.get_job_id()}/graph")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert faults == []


def ask(page: Page, action: str, confirm: str) -> None:
    page.get_by_role("group", name="What to do with the job").get_by_role("button", name=action).click()
    page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()


def outcome(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("region", name="What you asked for")).to_contain_text(text)


def vertex(page: Page, name: str) -> str:
    """Its id."""
    link = page.get_by_role("region", name="Job graph").get_by_role("link", name=name)
    return (link.get_attribute("href") or "").split("/")[-2]


def rates_move(page: Page) -> None:
    graph = page.get_by_role("region", name="Job graph")
    expect(graph.get_by_role("link")).to_have_count(2)
    expect(graph.get_by_role("link", name="by device")).to_contain_text(
        re.compile(r"busy \d+ %.*lag \d.*in [1-9]", re.S)
    )
    expect(graph.locator(".edge-ship")).to_have_text("hash")
    rate = graph.locator(".edge-rate")
    expect(rate).to_have_text(re.compile(r"^[1-9].*/s$"))
    read = page.get_by_role("definition").first
    before = graph.inner_text() + read.inner_text()
    page.wait_for_function(
        "before => document.querySelector('.graph').innerText + document.querySelector('dd').innerText !== before",
        arg=before,
    )


def savepoint(page: Page, folder: Path) -> None:
    ask(page, "Savepoint", "Take savepoint")
    outcome(page, re.compile(r"complete: \S*/savepoints/savepoint-"))
    assert [path.name for path in (folder / "savepoints").glob("savepoint-*/_metadata")] == ["_metadata"]


def traceback_of(page: Page, folder: Path) -> None:
    started = page.locator(".figure", has_text="Started").inner_text()
    (folder / "poison").touch()
    page.get_by_role("navigation", name="Views of the job").get_by_role("link", name="Exceptions").click()
    trace = page.get_by_role("region", name="Traceback of ValueError").first
    expect(trace).to_contain_text("ValueError: invalid literal for int() with base 10: 'unreadable'")
    expect(trace.locator(".own").first).to_contain_text(Path(__file__).name)
    expect(page.locator(".job-head")).to_contain_text("running")
    assert page.locator(".figure", has_text="Started").inner_text() == started


@pytest.mark.slow
def test_watch_a_job_take_a_savepoint_see_it_fail_and_cancel_it(opened: Opens, job: RunningJob, tmp_path: Path) -> None:
    page = opened(job)
    rates_move(page)
    savepoint(page, tmp_path)
    ask(page, "Checkpoint", "Take checkpoint")
    outcome(page, re.compile(r"complete: checkpoint \d+"))
    traceback_of(page, tmp_path)
    ask(page, "Cancel", "Cancel the job")
    outcome(page, "the job is CANCELED")
    expect(page.locator(".job-head")).to_contain_text("canceled")


@contextmanager
def with_token(token: str) -> Iterator[str]:
    """The address of one more server of this process' jobs, which asks for a token."""
    server = serve(dispatcher(), Configuration.from_dict({"rest.port": "0", "penstock.rest.token": token}))
    try:
        yield server.url
    finally:
        servers.remove(server)
        server.stop()


@pytest.mark.slow
def test_a_browser_that_has_logged_in_needs_no_token_to_see_and_cancel_a_job(browser: Browser, job: RunningJob) -> None:
    token = "a-token-that-nobody-guesses"
    refused: list[str] = []
    with with_token(token) as url:
        page = patient(browser.new_context().new_page())
        page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
        page.goto(f"{url}/login")
        page.get_by_label("Token of the REST API").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.goto(f"{url}/#/jobs/{job.get_job_id()}/graph")
        rates_move(page)
        ask(page, "Cancel", "Cancel the job")
        outcome(page, "the job is CANCELED")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.context.close()
    assert refused == [], "the Content-Security-Policy, or the server"


def test_every_view_has_what_the_job_says(opened: Opens, job: RunningJob) -> None:
    page = opened(job)
    rates_move(page)
    own = f"#/jobs/{job.get_job_id()}"
    device = vertex(page, "by device")
    worker = f"#/workers/{taskmanager_id(str(job.get_job_id()), 'worker-1')}"
    shows: dict[str, tuple[str | None, str | re.Pattern[str]]] = {
        f"{own}/graph/{device}/subtasks": ("Subtasks", re.compile(r"running.*running", re.S)),
        f"{own}/graph/{device}/watermarks": ("Watermarks by subtask", re.compile(r"0\s*20\d\d-.*1\s*20\d\d-", re.S)),
        f"{own}/graph/{device}/back-pressure": (None, re.compile(r"Level\s*ok")),
        f"{own}/graph/{device}/metrics": ("Metrics, over all subtasks", "numRecordsInPerSecond"),
        f"{own}/graph/{vertex(page, 'parse')}/flame-graph": ("Flame graph", re.compile("root|test_real_job")),
        f"{own}/checkpoints": ("Checkpoints", re.compile(r"completed.*100 %", re.S)),
        f"{own}/state/{device}": ("State by subtask", re.compile(r"\d K?B")),
        f"{own}/timeline/{device}": ("Subtasks over time", re.compile(r"running.*running", re.S)),
        f"{own}/configuration": (None, "execution.checkpointing.interval"),
        "#/workers": (None, re.compile(r"worker-1-.*MB", re.S)),
        worker: (None, "Status.JVM.Memory.Heap.Used"),
        f"{worker}/threads": (None, "MainThread"),
        "#/cluster": (None, "execution.checkpointing.savepoint-dir"),
    }
    for address, (region, text) in shows.items():
        page.evaluate("address => { location.hash = address }", address)
        main = page.get_by_role("main")
        found = main.get_by_label(region, exact=True).last if region else main
        expect(found).to_contain_text(text, use_inner_text=True)
        expect(page.get_by_role("alert")).to_have_count(0)
    page.evaluate("address => { location.hash = address }", f"{own}/checkpoints")
    page.get_by_role("region", name="Checkpoints", exact=True).get_by_role("link").first.click()
    expect(page.get_by_role("region", name=re.compile("^Vertices in checkpoint"))).to_contain_text("by device")


def to_spark_and_back(page: Page, job: RunningJob) -> None:
    """From a worker to its Spark job, in Spark's words with the job's name, and by a link there back to the page."""
    own = f"{servers[-1].url}/#/jobs/{job.get_job_id()}"
    workers = page.request.get(f"{servers[-1].url}/taskmanagers").json()["taskmanagers"]
    page.evaluate("address => { location.hash = address }", f"#/workers/{workers[0]['id']}")
    link = page.get_by_role("link", name="Spark's own page")
    address = str(link.get_attribute("href"))
    assert address.startswith(f"{workers[0]['spark-ui']}/jobs/job/?id=")
    api = f"{workers[0]['spark-ui']}/api/v1/applications"
    (application,) = page.request.get(api).json()
    jobs = {str(one["jobId"]): one for one in page.request.get(f"{api}/{application['id']}/jobs").json()}
    text = f"Penstock job Readings by device: {workers[0]['id']}"
    assert jobs[address.rpartition("=")[2]]["description"] == f'{text}, <a href="{own.removeprefix("http:")}">{own}</a>'
    with page.expect_popup() as opened:
        link.click()
    sparks = opened.value
    expect(sparks).to_have_title(re.compile("Details for Job"))
    sparks.goto(f"{workers[0]['spark-ui']}/jobs/")
    sparks.get_by_role("link", name=own, exact=True).first.click()
    expect(sparks.locator(".job-head")).to_contain_text("Readings by device")
    sparks.close()
    page.evaluate("address => { location.hash = address }", f"#/jobs/{job.get_job_id()}/graph")


@pytest.mark.slow
@pytest.mark.spark
def test_rescale_and_stop_a_job_on_spark(opened: Opens, tmp_path: Path) -> None:
    with ended(start("spark", tmp_path, 1, {"spark.master": "local[2]", **SPARK_UI})) as job:
        page = opened(job)
        rates_move(page)
        to_spark_and_back(page, job)
        savepoint(page, tmp_path)
        page.get_by_role("button", name="Rescale").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("spinbutton")).to_have_count(2)
        for field in dialog.get_by_role("spinbutton").all():
            field.fill("2")
        dialog.get_by_role("button", name="Rescale 2 vertices").click()
        outcome(page, "the job runs at its new parallelism")
        expect(page.get_by_role("region", name="Job graph").get_by_role("link", name="by device")).to_contain_text(
            re.compile("\N{MULTIPLICATION SIGN}2\\s*running")
        )
        rates_move(page)
        traceback_of(page, tmp_path)
        ask(page, "Stop", "Stop")
        outcome(page, re.compile(r"stopped; savepoint: \S*/savepoints/savepoint-"))
        expect(page.locator(".job-head")).to_contain_text("finished")
