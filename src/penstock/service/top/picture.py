"""Draws a sample in the terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.service.client.jobs import short_name
from penstock.service.stored.sizes import size_text
from penstock.service.top.sample import CheckpointSample, HoldSample, JobSample, VertexSample

#: The width (characters) of the bar of a vertex's time.
BAR: Final = 16
_COLOURS: Final = {"RUNNING": "green", "FINISHED": "green", "FAILED": "red", "FAILING": "red", "RESTARTING": "yellow"}


def picture(sample: JobSample) -> Group:
    """Return a drawing of the job's line, the table of its vertices, and its checkpoints."""
    head = Text.assemble(
        (short_name(sample.name), "bold"),
        f"  {sample.job_id}  ",
        (sample.state, _COLOURS.get(sample.state, "cyan")),
        f"  for {duration_text(sample.duration_ms)}",
        (restarts_text(sample), "red"),
    )
    table = Table(box=box.SIMPLE)
    table.add_column("vertex", overflow="fold")
    for name in ("par", "in/s", "out/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(Text.assemble(("busy", "green"), " ", ("pressed", "red"), " ", ("idle", "dim")), no_wrap=True)
    for name in ("lag", "status"):
        table.add_column(name, justify="right" if name == "lag" else "left", no_wrap=True)
    for vertex in sample.vertices:
        table.add_row(*_cells(vertex))
    holds = [Text(hold_text(hold), "yellow") for hold in sample.holds]
    return Group(head, table, *holds, Text(checkpoints_text(sample.checkpoints)))


def _cells(vertex: VertexSample) -> list[Text]:
    lag = "-" if vertex.watermark_lag_ms is None else duration_text(max(0, vertex.watermark_lag_ms))
    return [
        Text(vertex.name),
        Text(str(vertex.parallelism)),
        Text(rate_text(vertex.in_per_second)),
        Text(rate_text(vertex.out_per_second)),
        bar(vertex),
        Text(lag),
        Text(vertex.status, _COLOURS.get(vertex.status, "")),
    ]


def bar(vertex: VertexSample) -> Text:
    """Return a bar of a vertex's time, with symbols as well as colours, for terminals and people without colours."""
    if vertex.busy is None:
        return Text("-".ljust(BAR))
    busy = round(vertex.busy * BAR)
    pressed = min(BAR - busy, round((vertex.back_pressured or 0.0) * BAR))
    text = Text.assemble(("█" * busy, "green"), ("▒" * pressed, "red"), ("·" * (BAR - busy - pressed), "dim"))
    return text.append(f" {vertex.busy:4.0%}")


def rate_text(rate: float | None) -> str:
    """Return the records per second, in a few characters."""
    if rate is None:
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if rate >= limit:
            return f"{rate / (1e3 if unit == 'k' else limit):,.1f} {unit}"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def duration_text(milliseconds: float) -> str:
    """Return a duration, in a few characters."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def hold_text(hold: HoldSample) -> str:
    """Describe in one line which input holds a watermark back."""
    origin = "" if hold.origin is None else f", from {hold.origin}"
    if not hold.has_watermarks:
        origin += ", a source without watermarks"
    idle = f"; idle: {', '.join(hold.idle_inputs)}" if hold.idle_inputs else ""
    waits = f"waits for {'; '.join(hold.inputs)}{origin}{idle}"
    return f"watermark of {hold.name}: stands still for {duration_text(hold.duration_ms)}, {waits}"


def restarts_text(sample: JobSample) -> str:
    """Describe how often the job restarted and when it last failed; empty if it never restarted."""
    if not sample.restarts:
        return ""
    ago = "" if sample.failure_age_ms is None else f", the last failure {duration_text(sample.failure_age_ms)} ago"
    return f"  {sample.restarts} restart{'s' * (sample.restarts > 1)}{ago}"


def checkpoints_text(sample: CheckpointSample) -> str:
    """Describe the checkpoints in one line."""
    counts = f"checkpoints: {sample.completed} completed, {sample.in_progress} in progress, {sample.failed} failed"
    if sample.last_id is None:
        return counts
    took = duration_text(sample.last_duration_ms or 0)
    age = "" if sample.last_age_ms is None else f", {duration_text(sample.last_age_ms)} ago"
    return f"{counts}; the last is {sample.last_id}{age}: {size_text(sample.last_bytes or 0)} in {took}"
