"""`penstock top`: a sample of a job's data, from the answers of the REST API, and its drawing in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.base.errors import OperationError
from penstock.cli.client.jobs import short_name
from penstock.cli.client.rest_client import RestClient
from penstock.cli.console import size_text

#: The subtask metrics that are shown.
METRICS: Final = (
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "busyTimeMsPerSecond",
    "backPressuredTimeMsPerSecond",
    "idleTimeMsPerSecond",
    "currentInputWatermark",
)
#: A watermark (ms) below this means that none has arrived yet; Flink uses the smallest long.
NO_WATERMARK: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class VertexSample:
    """A vertex.

    Rates are records per second, summed over the subtasks; None if unknown. `busy`, `back_pressured` and `idle` are
    fractions of time (0 to 1), averaged over the subtasks. `watermark_lag_ms` is the slowest subtask's lag.
    """

    vertex_id: str
    name: str
    parallelism: int
    status: str
    in_per_second: float | None
    out_per_second: float | None
    busy: float | None
    back_pressured: float | None
    idle: float | None
    watermark_lag_ms: float | None
    records_in: int
    records_out: int


@dataclass(frozen=True, slots=True)
class CheckpointSample:
    """The checkpoints of a job: their counts, and the last completed one (None before the first)."""

    completed: int
    failed: int
    in_progress: int
    last_id: int | None
    last_duration_ms: int | None
    last_bytes: int | None
    last_age_ms: int | None


@dataclass(frozen=True, slots=True)
class HoldSample:
    """A vertex whose watermark has not advanced for `duration_ms`, because its `inputs` have not.

    `origin` is the vertex that causes this, if known. Without `has_watermarks`, the cause is a source without a
    watermark strategy.
    """

    name: str
    duration_ms: int
    inputs: tuple[str, ...]
    idle_inputs: tuple[str, ...]
    origin: str | None
    has_watermarks: bool


@dataclass(frozen=True, slots=True)
class JobSample:
    """A job at one moment; `duration_ms` is its running time, `failure_age_ms` the time since its last failure."""

    job_id: str
    name: str
    state: str
    duration_ms: int
    vertices: tuple[VertexSample, ...]
    checkpoints: CheckpointSample
    restarts: int
    failure_age_ms: int | None
    holds: tuple[HoldSample, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the sample as a dictionary, for JSON."""
        return asdict(self)


def sample(client: RestClient, job_id: str) -> JobSample:
    """Fetch a job's current data: a request for the job, for checkpoints, for watermarks, and for each vertex.

    Raises:
        OperationError: if the server does not answer, or does not know the job.
    """
    job = client.get(f"/jobs/{job_id}")
    now = int(job["now"])
    checkpoints = _checkpoints(client.get(f"/jobs/{job_id}/checkpoints"), now)
    vertices = tuple(_vertex(vertex, _metrics(client, job_id, vertex["id"]), now) for vertex in job["vertices"])
    failed = job.get("last-failure", -1)
    return JobSample(
        job["jid"],
        job["name"],
        job["state"],
        int(job["duration"]),
        vertices,
        checkpoints,
        job.get("restarts", 0),
        max(0, now - failed) if failed > 0 else None,
        _holds(client, job_id),
    )


def _holds(client: RestClient, job_id: str) -> tuple[HoldSample, ...]:
    """Return the holds; empty if the server does not report them, as Flink's does not, or its token is missing."""
    try:
        holds = client.get(f"/jobs/{job_id}/watermark-hold")["holds"]
    except OperationError:
        return ()
    return tuple(_hold(hold) for hold in holds)


def _hold(hold: Mapping[str, Any]) -> HoldSample:
    holding = [hold_input for hold_input in hold["inputs"] if hold_input["holds"]]
    origin = hold["origin"]
    is_new = origin is not None and all(origin["id"] != node["id"] for node in [*holding, hold])
    return HoldSample(
        hold["operator"],
        hold["duration"],
        tuple(_input_text(hold_input) for hold_input in holding),
        tuple(hold_input["name"] for hold_input in hold["inputs"] if hold_input["idle"]),
        None if not is_new or origin is None else origin["name"],
        origin is None or origin.get("has-watermarks", True),
    )


def _input_text(hold_input: Mapping[str, Any]) -> str:
    kind, parts = (
        ("split", hold_input["splits"])
        if hold_input["splits"]
        else ("subtask", [subtask + 1 for subtask in hold_input["subtasks"]])
    )
    more = hold_input["count"] - len(parts)
    named = ", ".join(map(str, parts)) + (f" and {more} more" if more else "")
    where = f"{kind if hold_input['count'] == 1 else kind + 's'} {named}"
    text = where if hold_input["splits"] else f"{hold_input['name']} ({where})"
    return text if hold_input["watermark"] is not None else f"{text}, which has no watermark yet"


def _metrics(client: RestClient, job_id: str, vertex_id: str) -> dict[str, dict[str, float]]:
    path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics?get={','.join(METRICS)}"
    return {metric["id"]: metric for metric in client.get(path)}


def _vertex(vertex: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]], now_ms: int) -> VertexSample:
    def of(name: str, aggregate: str) -> float | None:
        value = metrics.get(name, {}).get(aggregate)
        return None if value is None or value == "NaN" else float(value)

    def fraction(name: str) -> float | None:
        mean = of(name, "avg")
        return None if mean is None else min(1.0, max(0.0, mean / 1000))

    watermark = of("currentInputWatermark", "min")
    has_watermark = watermark is not None and NO_WATERMARK < watermark < -NO_WATERMARK
    return VertexSample(
        vertex["id"],
        vertex["name"],
        vertex["parallelism"],
        vertex["status"],
        of("numRecordsInPerSecond", "sum"),
        of("numRecordsOutPerSecond", "sum"),
        fraction("busyTimeMsPerSecond"),
        fraction("backPressuredTimeMsPerSecond"),
        fraction("idleTimeMsPerSecond"),
        now_ms - watermark if has_watermark and watermark is not None else None,
        int(vertex["metrics"]["read-records"]),
        int(vertex["metrics"]["write-records"]),
    )


def _checkpoints(response: Mapping[str, Any], now_ms: int) -> CheckpointSample:
    counts = response.get("counts") or {}
    last = (response.get("latest") or {}).get("completed") or {}
    acknowledged = last.get("latest_ack_timestamp")
    return CheckpointSample(
        counts.get("completed", 0),
        counts.get("failed", 0),
        counts.get("in_progress", 0),
        last.get("id"),
        last.get("end_to_end_duration"),
        last.get("state_size"),
        None if acknowledged is None else max(0, now_ms - int(acknowledged)),
    )


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
