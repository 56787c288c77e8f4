"""The live line, on a terminal and elsewhere."""

import io

from rich.console import Console

from penstock.cli.demo.flights import hour_ms
from penstock.cli.demo.run import Figures, Live, Meter
from penstock.runtime.job.view import JobProgress, VertexProgress
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP

FIRST_MS, LAST_MS = hour_ms("2013-01-01T00:00:00Z"), hour_ms("2013-01-11T00:00:00Z")


def progress(records: int, watermark_ms: int = MIN_TIMESTAMP, restarts: int = 0) -> JobProgress:
    source = VertexProgress("flights", True, records, records, watermark_ms)
    return JobProgress("RUNNING", (source,), checkpoints_completed=3, restarts=restarts)


def test_meter_follows_event_time() -> None:
    meter = Meter(FIRST_MS, LAST_MS)
    begun = meter.read(progress(0), 0.0)
    assert (begun.event_time, begun.share) == ("----------", 0.0)
    half = meter.read(progress(5, hour_ms("2013-01-06T00:00:00Z")), 1.0)
    assert (half.event_time, half.share) == ("2013-01-06", 0.5)
    ended = meter.read(progress(9, MAX_WATERMARK), 2.0)
    assert (ended.event_time, ended.share) == ("2013-01-11", 1.0)


def test_meter_measures_between_news_and_begins_anew_after_a_restart() -> None:
    meter = Meter(FIRST_MS, LAST_MS)
    meter.read(progress(0), 0.0)
    assert meter.read(progress(1_000), 1.0).per_second == 1_000
    assert meter.read(progress(1_000), 1.5).per_second == 1_000  # the workers have not reported since
    assert meter.read(progress(2_000), 2.0).per_second == 1_000
    assert meter.read(progress(500, restarts=1), 3.0).per_second == 0
    assert meter.read(progress(900, restarts=1), 4.0).per_second == 400


def figures(status: str = "running", restarts: int = 0) -> Figures:
    return Figures(status, "2013-03-01", 0.25, 25_000, 4, restarts)


def test_elsewhere_a_line_comes_every_two_seconds() -> None:
    now_s = 100.0
    console = Console(file=io.StringIO(), force_terminal=False, width=100)
    with Live(console, lambda: now_s) as live:
        for _ in range(25):
            now_s += 0.2
            live.show(figures())
        now_s += 2.0
        live.show(figures("restarting"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "    2 s  event time 2013-03-01  25,000 flights/s  checkpoint  4  0 restarts",
        "    4 s  event time 2013-03-01  25,000 flights/s  checkpoint  4  0 restarts",
        "    7 s  event time 2013-03-01  restarting",
    ]


def test_a_terminal_shows_a_bar_and_leaves_nothing() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Live(console) as live:
        live.show(figures(restarts=1))
        live._bar.refresh()  # type: ignore[union-attr]
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "25,000 flights/s  checkpoint  4  1 restart" in shown
    assert shown.endswith("\x1b[2K")
