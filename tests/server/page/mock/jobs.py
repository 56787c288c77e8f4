"""Made-up jobs: their vertices, and figures as functions of time."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import Any

ENDED = ("FAILED", "CANCELED", "FINISHED")
TASK_STATES = [
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
]
JOB_STATES = [
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
]
WORKERS = 4
MEBI = 1 << 20


def now_ms() -> int:
    return int(time.time() * 1000)


def hex_id(name: str) -> str:
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def worker_id(n: int) -> str:
    return f"worker-{n % WORKERS}"


@dataclass
class Vertex:
    """A vertex; rates are records/s of all subtasks, shares are of a subtask's time."""

    name: str
    inputs: tuple[str, ...] = ()
    ship: str = "HASH"
    records_in: float = 0
    records_out: float = 0
    busy: float = 0.3
    held: float = 0.0
    state_bytes: int = 0
    lag_ms: int | None = 1500
    accumulators: tuple[tuple[str, str, str], ...] = ()
    parallelism: int = 4
    #: what its operators do
    steps: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return hex_id(self.name)

    def swing(self, subtask: int, at_s: float) -> float:
        """How much more or less than the average a subtask does."""
        return 1 + 0.35 * math.sin(at_s / 7 + subtask * 1.7)

    def share(self, subtask: int, at_s: float, of: float) -> float:
        return min(1.0, of * self.swing(subtask, at_s))

    def total(self, subtask: int, seconds: float, a_second: float) -> float:
        """What has come together since the start: the integral of the rate."""
        waves = 0.35 * 7 * (math.cos(subtask * 1.7) - math.cos(seconds / 7 + subtask * 1.7))
        return max(0.0, a_second / self.parallelism * (seconds + waves))


@dataclass
class Job:
    """A job that began `age_s` ago; `ended` says how and how long ago it ended."""

    name: str
    vertices: list[Vertex]
    kind: str = "STREAMING"
    state: str = "RUNNING"
    age_s: float = 3000
    ended_age_s: float = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    savepoints: list[tuple[int, int, str]] = field(default_factory=list)
    restarts: int = 0
    #: the name of a vertex whose second input holds its watermark back
    held_back: str = ""
    made_ms: int = field(default_factory=now_ms)

    def __post_init__(self) -> None:
        self.id = hex_id("job " + self.name)
        self.start_ms = self.made_ms - int(self.age_s * 1000)
        self.end_ms = self.made_ms - int(self.ended_age_s * 1000) if self.state in ENDED else -1

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def end(self, state: str) -> None:
        self.state, self.end_ms = state, now_ms()

    @property
    def seconds(self) -> float:
        return ((self.end_ms if self.end_ms > 0 else now_ms()) - self.start_ms) / 1000

    def vertex(self, vertex_id: str) -> Vertex | None:
        return next((vertex for vertex in self.vertices if vertex.id == vertex_id), None)

    @property
    def task_state(self) -> str:
        return self.state if self.state in TASK_STATES else "CREATED"


USER_TRACEBACK = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/penstock/runtime/operators/record/process.py", line 88, in process_batch
    self._function.process_element(value, self._context)
  File "/srv/jobs/orders.py", line 41, in process_element
    rate = RATES[order.currency]
           ~~~~~^^^^^^^^^^^^^^^^
KeyError: 'XAU'
"""


def failure(task: str, seconds_ago: float, *, others: int = 0) -> dict[str, Any]:
    at = now_ms() - int(seconds_ago * 1000)
    one = {
        "exceptionName": "KeyError",
        "stacktrace": USER_TRACEBACK,
        "timestamp": at,
        "failureLabels": {"type": "user", "operator": task},
        "taskName": f"{task} (2/4)",
        "endpoint": "10.0.0.7:40112",
        "taskManagerId": worker_id(1),
    }
    beside = {**one, "exceptionName": "ConnectionResetError", "timestamp": at + 12, "taskName": f"{task} (3/4)"}
    beside["stacktrace"] = "ConnectionResetError: the worker of subtask 1 is gone\n"
    return {**one, "concurrentExceptions": [beside] * others}


def made_up(wide: int = 0) -> list[Job]:
    """The jobs of the server; with `wide`, one more whose vertices have that many subtasks."""
    orders = [
        Vertex("Source: orders from Kafka", records_out=84_000, busy=0.35, held=0.12, lag_ms=None),
        Vertex("Source: customers -> parse", records_out=1_200, busy=0.04, lag_ms=None, parallelism=2),
        Vertex(
            "Enrich orders with customers",
            ("Source: orders from Kafka", "Source: customers -> parse"),
            records_in=85_200,
            records_out=83_900,
            busy=0.71,
            state_bytes=420 * MEBI,
            accumulators=(("unknown customers", "IntCounter", "1321"),),
        ),
        Vertex(
            "Window: revenue by region and minute",
            ("Enrich orders with customers",),
            records_in=83_900,
            records_out=240,
            busy=0.44,
            state_bytes=96 * MEBI,
            lag_ms=2300,
        ),
        Vertex("Late orders: file sink", ("Enrich orders with customers",), "FORWARD", 17, 0, 0.01, lag_ms=1600),
        Vertex("Sink: revenue to PostgreSQL", ("Window: revenue by region and minute",), "REBALANCE", 240, 0, 0.08),
    ]
    jobs = [
        Job("Orders by region", orders, failures=[failure("Enrich orders with customers", 1900, others=2)], restarts=1),
        Job(
            "Sessions of clicks",
            [
                Vertex("Source: clicks", records_out=9_000, busy=0.2, held=0.62, lag_ms=None),
                Vertex("Sessions", ("Source: clicks",), "HASH", 9_000, 310, 0.97, state_bytes=31 * MEBI, lag_ms=41_000),
                Vertex("Sink: Iceberg", ("Sessions",), "FORWARD", 310, 0, 0.05),
            ],
            age_s=90_000,
        ),
        Job(
            "Fraud patterns",
            [Vertex("Source: payments", records_out=500), Vertex("Patterns", ("Source: payments",), "HASH", 500)],
            state="FAILED",
            age_s=7200,
            ended_age_s=3600,
            failures=[failure("Patterns", 3600), failure("Patterns", 3700), failure("Patterns", 3800)],
            restarts=2,
        ),
        Job(
            "Daily totals",
            [Vertex("Read lines", records_out=90_000), Vertex("Totals", ("Read lines",), "HASH", 90_000, 12)],
            kind="BATCH",
            state="FINISHED",
            age_s=5000,
            ended_age_s=4700,
        ),
    ]
    if wide:
        spread = [
            Vertex("Source: sensors", records_out=4e6, busy=0.5, held=0.2, lag_ms=None, parallelism=wide),
            Vertex("Averages by sensor", ("Source: sensors",), "HASH", 4e6, 2e5, 0.8, 0, 900 * MEBI, 900, (), wide),
            Vertex("Sink: files", ("Averages by sensor",), "FORWARD", 2e5, 0, 0.1, parallelism=wide),
        ]
        jobs.append(Job("Wide", spread, age_s=600))
    return jobs
