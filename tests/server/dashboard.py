"""Flink's own page, as it ships, against Penstock: `python -m tests.server.dashboard --flink PATH`.

PATH is an installation of Flink or of PyFlink, in which `flink-dist*.jar` has the page. Its files come from there, and
all else is asked of the REST API of a streaming job that has failed and been rescaled: in this process, with
`--target spark`, or in a session (`--target "local in a session"`), where the browser logs in. Each view must show what
it is about; errors that the browser tells and answers of 4xx and 5xx are listed, and make the command end with 1.
"""

from __future__ import annotations

import argparse
import mimetypes
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import ConsoleMessage, Page, Route, expect
from tests.cli.session.sessions import session_in
from tests.server.page.browser import PATIENCE_MS, open_browser, patient
from tests.server.rest.check_jobs import settings

from penstock.base.configuration import Configuration
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cli.client.jobs import rescale
from penstock.cli.client.rest_client import Address, RestClient
from penstock.cli.program.launch import ProgramSpec
from penstock.cli.session.client import SubmittedProgram
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction

NAME = "seen by Flink"
TARGETS = ("local", "spark", "local in a session", "spark in a session")
#: At which number the first attempt fails.
FAILS_AT = 1_000
READY_SECONDS = 600.0
#: For how long (ms) a view is left alone that asks again and again, before it is judged.
LOOK_MS = 1_500


#: The program whose plan is drawn.
SUBMITTED = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(range(10)).name("numbers").key_by(lambda number: number % 2).sum().name("sums").print()
env.execute("numbers")
"""


class OnceBroken(MapFunction):
    """Slow enough to be looked at; the first attempt fails."""

    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value: int) -> int:
        threading.Event().wait(0.001)
        if value == FAILS_AT and not self.attempt:
            raise ValueError("this attempt was to fail")
        return value


def pipeline(env: StreamExecutionEnvironment) -> None:
    """Numbers, counted by their last digit."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(
        lambda number, _: number * 10
    )
    numbers = env.from_source(NumberSequenceSource(1, 10**9), strategy, "numbers").map(OnceBroken()).name("digit")
    counted = numbers.map(lambda number: (number % 10, 1)).key_by(lambda pair: pair[0])
    total = counted.reduce(lambda one, other: (one[0], one[1] + other[1])).name("count").uid("count")
    total.filter(lambda _: False).print()


def options(target: str, folder: str) -> dict[str, str]:
    """Those of the job."""
    more = {"pipeline.name": NAME, "jobmanager.scheduler": "adaptive", "restart-strategy.type": "fixed-delay"}
    return settings(target, "streaming", "0", folder, more).to_dict()


@contextmanager
def job(target: str) -> Iterator[RestClient]:
    """The REST API of the job, which runs until the end of the block."""
    from penstock.server.rest.server import servers

    with tempfile.TemporaryDirectory(prefix="penstock-dashboard-") as folder:
        configuration = Configuration.from_dict(options(target, folder))
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        pipeline(env)
        running = env.execute_async(NAME)
        try:
            yield RestClient(Address(servers[0].url))
        finally:
            running.end()


@contextmanager
def job_of_a_session(target: str) -> Iterator[RestClient]:
    """The same of a session, to which this file is given as a program."""
    with tempfile.TemporaryDirectory(prefix="penstock-dashboard-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        given = options(target, folder)
        with session_in(Path(folder), {"execution.target": target}) as session:
            own = {key: value for key, value in given.items() if not key.startswith("rest.")}
            program = SubmittedProgram(session.client, ProgramSpec(__file__, ("--as-program",), own))
            program.wait_for_job()
            yield session.client


def ready(client: RestClient) -> dict[str, Any]:
    """The job when it has failed, begun again, completed a checkpoint, and been rescaled since."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        threading.Event().wait(0.1)
        jobs = client.get("/jobs/overview")["jobs"]
        if not jobs:
            continue
        job_id = jobs[0]["jid"]
        failures = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
        last = client.get(f"/jobs/{job_id}/checkpoints")["latest"]["completed"]
        if failures and last is not None and last["trigger_timestamp"] > failures[0]["timestamp"]:
            rescale(client, job_id, {"count": 3}, False, lambda _: None)
            found: dict[str, Any] = client.get(f"/jobs/{job_id}")
            return found
    raise TimeoutError(f"the job is not ready after {READY_SECONDS:.0f} s: {client.get('/jobs/overview')}")


@dataclass(frozen=True)
class View:
    """A place of the page.

    Attributes:
        path: behind the `#`.
        shows: texts that must be there.
        clicks: names of tabs that are clicked first, one after the other.
        drawn: what must be drawn, as a selector of CSS.
    """

    path: str
    shows: tuple[str, ...]
    clicks: tuple[str, ...] = ()
    drawn: str | None = None


def views(shown: dict[str, Any], worker: str) -> list[View]:
    """All views of the page for a running job; `worker` is one of its task managers."""
    job_path, one = f"/job/running/{shown['jid']}", f"/task-manager/{worker}"
    vertex = shown["vertices"][-1]
    drawer = f"{job_path}/overview/{vertex['id']}"
    checkpoints = f"{job_path}/checkpoints"
    return [
        View("/overview", (NAME, "Available Task Slots")),
        View("/job/running", (NAME, "RUNNING")),
        View("/job/completed", ("Completed",)),
        View(f"{job_path}/overview", (NAME, "numbers", "count", "HASH")),
        View(f"{drawer}/detail", (vertex["name"], "Parallelism")),
        View(f"{drawer}/subtasks", ("Bytes Received", "RUNNING")),
        View(f"{drawer}/taskmanagers", ("Records Received", "RUNNING")),
        View(f"{drawer}/watermarks", ("Watermark",)),
        View(f"{drawer}/accumulators", ("Vertex Accumulators",)),
        View(f"{drawer}/backpressure", ("Back Pressure Status",)),
        View(f"{drawer}/metrics", ("Add metric",)),
        View(f"{drawer}/flamegraph", ("Measurement",), drawn="svg.d3-flame-graph g.frame"),
        View(f"{job_path}/exceptions", ("this attempt was to fail",)),
        View(f"{job_path}/exceptions", ("ValueError",), ("Exception History",)),
        View(f"{job_path}/timeline", ("Timeline",)),
        View(checkpoints, ("Checkpoint Counts", "Latest Completed")),
        View(checkpoints, ("Trigger Time", "COMPLETED"), ("History",)),
        View(checkpoints, ("End to End Duration", "Checkpointed Data Size"), ("Summary",)),
        View(checkpoints, ("Checkpointing Mode", "Exactly Once"), ("Configuration",)),
        View(f"{job_path}/rescales", ("Rescale Counts", "Latest Completed Rescale")),
        View(f"{job_path}/rescales", ("COMPLETED",), ("History",)),
        View(f"{job_path}/rescales", (), ("Summary",)),
        View(f"{job_path}/rescales", (), ("Configuration",)),
        View(f"{job_path}/dataskew", ("Data Skew",)),
        View(f"{job_path}/configuration", ("pipeline.name",)),
        View("/task-manager", (worker[:8],)),
        View(f"{one}/metrics", ("Memory",)),
        View(f"{one}/logs", ()),
        View(f"{one}/stdout", ()),
        View(f"{one}/log-list", (".log",)),
        View(f"{one}/thread-dump", ()),
        View("/job-manager/metrics", ("JVM",)),
        View("/job-manager/config", ("execution.target",)),
        View("/job-manager/logs", ()),
        View("/job-manager/stdout", ()),
        View("/job-manager/log", ("penstock.log",)),
        View("/job-manager/thread-dump", ()),
    ]


class Dashboard:
    """The page in a browser, and what goes wrong there.

    Args:
        page: of the browser.
        url: of the REST API.
        files: of Flink's page, by their paths.
    """

    def __init__(self, page: Page, url: str, files: Mapping[str, bytes]) -> None:
        self._page, self._url, self._files = page, url, files
        self.problems: list[str] = []
        self.asked: set[str] = set()
        page.route("**/*", self._serve)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("response", lambda answer: self._answered(answer.status, answer.url))
        page.on("requestfailed", lambda asked: self._failed(asked.url, asked.failure))

    def open(self, view: View) -> list[str]:
        """Look at a view; what is wrong there."""
        self.problems = []
        self._page.goto(f"{self._url}/#{view.path}")
        for tab in view.clicks:
            # The last, because the job has tabs of the same names above those of the view.
            self._page.get_by_role("tab", name=tab, exact=True).last.click()
        for text in view.shows:
            try:
                expect(self._page.get_by_text(text).filter(visible=True).first).to_be_visible()
            except AssertionError:
                seen = self._page.locator("flink-root").inner_text()
                self._note(f"does not show {text!r} but {' '.join(seen.split())[:300]!r}")
        if view.drawn is not None:
            try:
                expect(self._page.locator(view.drawn).first).to_be_visible()
            except AssertionError:
                self._note(f"draws no {view.drawn}")
        self._page.wait_for_timeout(LOOK_MS)
        return list(dict.fromkeys(self.problems))

    def submit(self, name: str, shows: str) -> list[str]:
        """Let the page for submitting draw the plan of a program that was uploaded; what is wrong there."""
        self.problems = []
        self._page.goto(f"{self._url}/#/submit")
        self._page.get_by_text(name, exact=True).first.click()
        self._page.get_by_role("button", name="Show Plan").click()
        try:
            expect(self._page.locator("flink-dagre").get_by_text(shows).first).to_be_visible()
        except AssertionError:
            self._note(f"draws no {shows!r}: {' '.join(self._page.locator('body').inner_text().split())[:300]!r}")
        return list(dict.fromkeys(self.problems))

    def _serve(self, route: Route) -> None:
        path = urlsplit(route.request.url).path.lstrip("/") or "index.html"
        found = self._files.get(path)
        if found is None:
            route.continue_()
        else:
            route.fulfill(body=found, content_type=mimetypes.guess_type(path)[0] or "application/octet-stream")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"console: {message.text}")

    def _answered(self, status: int, url: str) -> None:
        path = urlsplit(url).path
        if path.lstrip("/") not in self._files:
            self.asked.add(path)
        if status >= 400:
            self._note(f"{status} for {path}")

    def _failed(self, url: str, why: str | None) -> None:
        if why != "net::ERR_ABORTED":  # the page asks no longer, because another view is open
            self._note(f"{why} for {url}")

    def _note(self, problem: str) -> None:
        self.problems.append(problem)


def read_page_files(flink: Path) -> dict[str, bytes]:
    """The files of Flink's page."""
    jar = next(flink.rglob("flink-dist*.jar"), None)
    if jar is None:
        raise FileNotFoundError(f"there is no flink-dist*.jar below {flink}")
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith("web/") and not name.endswith("/")]
        return {name.removeprefix("web/"): archive.read(name) for name in names}


def log_in(page: Page, client: RestClient) -> None:
    """Give the browser a cookie in the place of the token, which Flink's page cannot send."""
    page.goto(f"{client.address.url}/login")
    page.get_by_label("Token").fill(client.address.token or "")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{client.address.url}/")
    page.goto("about:blank")


def look(flink: Path, target: str, say: Callable[[str], None], pictures: Path | None) -> int:
    """Look at each view, and tell of each; how many have problems."""
    files, worse = read_page_files(flink), 0
    place, _, of_session = target.partition(" in a ")
    with (job_of_a_session if of_session else job)(place) as client, open_browser() as browser:
        shown = ready(client)
        page = patient(browser.new_page(viewport={"width": 1400, "height": 1000}))
        expect.set_options(timeout=4 * PATIENCE_MS)  # the first view loads all of the page
        if client.address.token:
            log_in(page, client)
        dashboard = Dashboard(page, client.address.url, files)
        worker = client.get("/taskmanagers")["taskmanagers"][0]["id"]
        all_of_them = views(shown, worker)
        for number, one in enumerate(all_of_them):
            problems = dashboard.open(one)
            worse += bool(problems)
            where = " / ".join((one.path.replace(shown["jid"], ":jobid"), *one.clicks))
            say(f"{'WRONG' if problems else 'ok   '} {where}")
            for problem in problems:
                say(f"      {problem}")
            if pictures is not None:
                page.screenshot(path=pictures / f"{number:02}.png")
        if of_session:
            client.upload("/jars/upload", "jarfile", "counting.py", SUBMITTED.encode())
            problems = dashboard.submit("counting.py", "numbers")
            worse += bool(problems)
            say(f"{'WRONG' if problems else 'ok   '} /submit")
            for problem in problems:
                say(f"      {problem}")
            if pictures is not None:
                page.screenshot(path=pictures / "submit.png")
        say(f"{len(all_of_them)} views, {worse} with problems; {len(dashboard.asked)} paths of the REST API were asked")
        state = client.get(f"/jobs/{shown['jid']}")["state"]
        assert state == "RUNNING", "the job runs on"
    return worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flink", type=Path, help="an installation of Flink or PyFlink")
    parser.add_argument("--target", choices=TARGETS, default="local")
    parser.add_argument("--as-program", action="store_true", help="run the job alone, as a session does")
    parser.add_argument("--pictures", type=Path, help="a directory for a picture of each view")
    options = parser.parse_args()
    if options.as_program:
        env = StreamExecutionEnvironment.get_execution_environment()
        pipeline(env)
        env.execute(NAME)
        return 0
    if options.flink is None:
        parser.error("--flink is needed")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    return 1 if look(options.flink, options.target, lambda text: print(text, flush=True), options.pictures) else 0


if __name__ == "__main__":
    sys.exit(main())
