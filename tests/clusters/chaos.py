"""Chaos on hosts that are apart: `python -m tests.clusters.chaos --minutes 30 --mode STREAMING --seed 1`.

A job runs on a standalone Spark whose master, workers and drivers are each in a host of its own. Every few seconds
something happens to it: a Python worker, the JVM of an executor or the leading driver gets SIGKILL, one of the former
two is stopped for some seconds, or a link between two hosts carries nothing for some seconds, one way or both ways. A
driver that dies is followed by one that stood by, and a new one begins to stand by, as under a supervisor. Who leads is
decided by a lock on a file that all see, or by ZooKeeper (`--election ZOOKEEPER`). With that, the leader loses its
connection to ZooKeeper now and then; if that lasts, the job is suspended, and the other driver goes on. In the end the
committed output must be what plain Python says, each record once.

The figures are times from a fault to the first *commit* of a record that its source made after the fault: a checkpoint
must have completed meanwhile, which needs every task. For faults that last a while they are also given from their end.
`none` is no fault at all: what the same figure comes to at a random moment. For a driver that dies, there is also the
time from when Spark had the executors for the next one.
"""

from __future__ import annotations

import json
import math
import random
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from tests.clusters.job import Commits, check_output
from tests.clusters.network import kill, missing
from tests.clusters.standalone import DRIVERS, WORKERS, ZOOKEEPER, ZOOKEEPER_PORT, Driver, Standalone, standalone
from tests.clusters.switch import Link
from tests.spec.kill_executor import wait_for

MODES: Final = ("STREAMING", "MICRO_BATCH")
#: How long a job may take to commit new records after a fault.
PATIENCE_S: Final = 120.0
POLL_S: Final = 0.02
#: Which share of the time the job is expected to be at work.
AT_WORK: Final = 0.7
#: How long a driver takes to end at most that has lost its connection to ZooKeeper.
NOTICE_S: Final = 6.0
CUT: Final = Link(cut=True)
WHOLE: Final = Link()
#: By which means a driver that dies is followed by one that stands by.
ELECTIONS: Final = {
    "FILE": {"high-availability.type": "FILE"},
    "ZOOKEEPER": {
        "high-availability.type": "ZOOKEEPER",
        "high-availability.zookeeper.quorum": f"{ZOOKEEPER}:{ZOOKEEPER_PORT}",
        "high-availability.zookeeper.client.session-timeout": "6 s",
    },
}


@dataclass
class Fault:
    """What happened, and how long the job took. Moments are seconds of the wall clock."""

    kind: str
    what: str
    begun_s: float
    ended_s: float
    committed_s: float = 0.0
    #: when Spark had the executors for the driver that follows
    executors_s: float | None = None

    @property
    def from_begin_s(self) -> float:
        return self.committed_s - self.begun_s

    @property
    def from_end_s(self) -> float:
        return self.committed_s - self.ended_s

    @property
    def beyond_spark_s(self) -> float | None:
        """What a driver took that took over, but for Spark's own start."""
        return None if self.executors_s is None else self.committed_s - self.executors_s


@dataclass
class Chaos:
    """One job, its drivers, and what happens to them.

    Args:
        cluster: it runs there.
        chance: decides what happens when.
        arguments: of the drivers.
        lasting_s: how long a fault lasts that ends by itself, at least and at most.
        pause_s: between two faults, at least and at most.
        elects: whether drivers elect who leads by ZooKeeper.
    """

    cluster: Standalone
    chance: random.Random
    arguments: dict[str, object]
    lasting_s: tuple[float, float]
    pause_s: tuple[float, float]
    elects: bool = False
    faults: list[Fault] = field(default_factory=list)
    #: those of which no worker could be found at the moment
    missed: int = 0

    def __post_init__(self) -> None:
        self.commits = Commits(Path(str(self.arguments["folder"])) / "out")
        self.leader = self._drive(DRIVERS[0])
        self.standby: Driver | None = None
        self._kinds: dict[str, Callable[[], Fault | None]] = {
            "none": self._nothing,
            "kill a worker": lambda: self._kill("kill a worker", self._a_worker()),
            "stop a worker": lambda: self._stop("stop a worker", self._a_worker()),
            "kill an executor": lambda: self._kill("kill an executor", self._an_executor()),
            "stop an executor": lambda: self._stop("stop an executor", self._an_executor()),
            "kill the driver": self._kill_driver,
            "cut one way": lambda: self._cut("cut one way", both=False),
            "cut both ways": lambda: self._cut("cut both ways", both=True),
        }
        if self.elects:
            self._kinds["cut ZooKeeper"] = self._cut_zookeeper

    @property
    def kinds(self) -> list[str]:
        return list(self._kinds)

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self, minutes: float, kinds: list[str], say: Callable[[str], None], most: float = math.inf) -> None:
        """Let faults happen for some time, and at most so many; then let the job end.

        The kinds come in a random order, each in turn.
        """
        self._await_commit(time.time(), "the job has begun")
        self.standby = self._drive(DRIVERS[1])
        until_s, turn = time.time() + minutes * 60, list[str]()
        while time.time() < until_s and not self._is_over() and len(self.faults) < most:
            self._pause(self.chance.uniform(*self.pause_s))
            turn = turn or self.chance.sample(kinds, len(kinds))
            if (fault := self._kinds[turn.pop()]()) is None:
                self.missed += 1
                continue
            fault.committed_s = self._await_commit(fault.begun_s, fault.kind)
            if self._is_over():
                break  # it may have been too late to have any effect
            self._settle(fault)
            self.faults.append(fault)
            say(f"{fault.from_begin_s:6.1f} s  {fault.kind}: {fault.what}")
        say("the faults are over; the job may end")
        wait_for(self._is_over, "the job has ended", 600)
        if self.leader.process.wait():
            raise AssertionError(f"the driver failed: {self.leader.last_words()}")
        if self.standby is not None:
            self.standby.process.wait(60)

    def report(self) -> list[str]:
        """The figures, a line for each kind."""
        lines = [
            "| fault | times | from the fault: median, max (s) | from its end: median, max (s) |",
            "| - | - | - | - |",
        ]
        by_kind = defaultdict(list)
        for fault in self.faults:
            by_kind[fault.kind].append(fault)
        for kind in self._kinds:
            if found := by_kind[kind]:
                begun = _median_and_max([fault.from_begin_s for fault in found])
                ended = _median_and_max([fault.from_end_s for fault in found])
                lasted = any(fault.ended_s > fault.begun_s for fault in found)
                lines.append(f"| {kind} | {len(found)} | {begun} | {ended if lasted else ''} |")
        beyond = [fault.beyond_spark_s for fault in self.faults if fault.beyond_spark_s is not None]
        if beyond:
            lines.append(f"take-over beyond Spark's own start: {_median_and_max(beyond)} s")
        return lines

    # --- the faults ---------------------------------------------------------------------------------------------------

    def _nothing(self) -> Fault:
        now = time.time()
        return Fault("none", "nothing", now, now)

    def _a_worker(self) -> tuple[str, int] | None:
        """A Python worker of the job, or of Spark where the job has none of its own."""
        named = [(str(self.cluster.find_host(process)), process) for _, _, process in self.leader.workers]
        workers = named or self.cluster.python_workers()
        return self.chance.choice(workers) if workers else None

    def _an_executor(self) -> tuple[str, int] | None:
        """An executor that runs a worker of the job, if that is known."""
        executors = self.cluster.executors()
        hosts = {self.cluster.find_host(process) for _, _, process in self.leader.workers}
        wanted = [one for one in executors if one[0] in hosts] or executors
        return self.chance.choice(wanted) if wanted else None

    def _kill(self, kind: str, found: tuple[str, int] | None) -> Fault | None:
        if found is None:
            return None
        now = time.time()
        kill(found[1])
        return Fault(kind, f"process {found[1]} of {found[0]}", now, now)

    def _stop(self, kind: str, found: tuple[str, int] | None) -> Fault | None:
        if found is None:
            return None
        begun_s, lasts_s = time.time(), self.chance.uniform(*self.lasting_s)
        kill(found[1], signal.SIGSTOP)
        self._pause(lasts_s)
        kill(found[1], signal.SIGCONT)
        return Fault(kind, f"process {found[1]} of {found[0]}, {lasts_s:.1f} s", begun_s, time.time())

    def _kill_driver(self) -> Fault | None:
        assert self.standby is not None
        now = time.time()
        kill(self.leader.process.pid)
        former = self._change_leaders()
        return Fault("kill the driver", f"process {former.process.pid} of {former.host.name}", now, now)

    def _change_leaders(self) -> Driver:
        """The leader has ended, or is to: the one that stands by follows, and another one does so; returns who led."""
        assert self.standby is not None
        former = self.leader
        former.end()
        self.leader, self.standby = self.standby, self._drive(former.host.name)
        return former

    def _cut_zookeeper(self) -> Fault:
        """The leader's connection: the job is suspended if that lasts, which ends the driver."""
        begun_s, lasts_s, host = time.time(), self.chance.uniform(*self.lasting_s), self.leader.host.name
        self._set(host, ZOOKEEPER, True, CUT)
        self._pause(lasts_s)
        self._set(host, ZOOKEEPER, True, WHOLE)
        self._pause(NOTICE_S)
        what = f"{host}, {lasts_s:.1f} s"
        if self._is_over() and self.leader.process.returncode:
            # Until then the job goes on, and what it commits says nothing of the other driver.
            begun_s = ended_s = time.time()
            self._change_leaders()
            return Fault("cut ZooKeeper", f"{what}, and the other driver leads", begun_s, ended_s)
        return Fault("cut ZooKeeper", what, begun_s, begun_s + lasts_s)

    def _cut(self, kind: str, both: bool) -> Fault:
        """Between two of the hosts at work: the driver's, and those of the job's workers, as far as these are known."""
        at_work = {self.cluster.find_host(process) for _, _, process in self.leader.workers} - {None}
        one, other = self.chance.sample([self.leader.host.name, *(sorted(map(str, at_work)) or WORKERS)], 2)
        begun_s, lasts_s = time.time(), self.chance.uniform(*self.lasting_s)
        self._set(one, other, both, CUT)
        self._pause(lasts_s)
        self._set(one, other, both, WHOLE)
        arrow = "and" if both else "to"
        return Fault(kind, f"{one} {arrow} {other}, {lasts_s:.1f} s", begun_s, time.time())

    def _set(self, one: str, other: str, both: bool, link: Link) -> None:
        self.cluster.network.set(one, other, link)
        if both:
            self.cluster.network.set(other, one, link)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _drive(self, host: str) -> Driver:
        return self.cluster.drive(host, self.arguments)

    def _is_over(self) -> bool:
        return self.leader.process.poll() is not None

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_over():
            time.sleep(POLL_S)

    def _await_commit(self, moment_s: float, what: str) -> float:
        """When the first record was committed that was made after a moment."""
        until = time.monotonic() + PATIENCE_S
        while True:
            over = self._is_over()
            self.commits.look()
            if (committed_s := self.commits.first_after(moment_s)) is not None:
                return committed_s
            if over and self.leader.process.returncode == 0:
                return time.time()  # there was nothing more to be made
            if over or time.monotonic() > until:
                problem = "the driver has ended" if over else f"waited {PATIENCE_S:.0f} s"
                raise AssertionError(f"{what}: {problem}, and nothing new is committed: {self.leader.last_words()}")
            time.sleep(POLL_S)

    def _settle(self, fault: Fault) -> None:
        if fault.kind == "kill the driver" or "the other driver leads" in fault.what:
            fault.executors_s = self.leader.when("executors")


def _median_and_max(figures: list[float]) -> str:
    return f"{statistics.median(figures):.1f}, {max(figures):.1f}"


def chaos(
    cluster: Standalone,
    folder: Path,
    minutes: float,
    mode: str,
    seed: int,
    say: Callable[[str], None],
    kinds: list[str] | None = None,
    rate: float = 1_000.0,
    lasting_s: tuple[float, float] = (2.0, 8.0),
    pause_s: tuple[float, float] = (1.0, 4.0),
    redundant: int = 0,
    most: float = math.inf,
    election: str = "FILE",
) -> Chaos:
    """Run a job through faults; returns what has happened. Raises `AssertionError` if the output is wrong.

    Args:
        cluster: runs the job.
        folder: all its hosts see it; output and checkpoints are there.
        minutes: how long faults happen.
        mode: of the job.
        seed: decides what happens when.
        say: is told of each fault.
        kinds: of faults; None for all.
        rate: records a second.
        lasting_s: how long a fault lasts that ends by itself, at least and at most.
        pause_s: between two faults, at least and at most.
        redundant: idle workers.
        most: how many faults happen at most.
        election: how drivers decide who leads: one of ELECTIONS.
    """
    records = int(rate * minutes * 60 * AT_WORK)
    settings = {**ELECTIONS[election], "slotmanager.redundant-taskmanager-num": str(redundant)}
    arguments = {"folder": str(folder), "mode": mode, "rate": rate, "records": records, "settings": settings}
    begun = Chaos(cluster, random.Random(seed), arguments, lasting_s, pause_s, election == "ZOOKEEPER")
    try:
        begun.run(minutes, kinds or begun.kinds, say, most)
    except BaseException:
        say(json.dumps(begun.leader.said[-3:]))
        raise
    check_output(records, folder / "out")
    return begun


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long faults happen.")
@click.option("--mode", default="STREAMING", show_default=True, type=click.Choice(MODES))
@click.option("--seed", default=None, type=int, help="Makes the choice of faults the same again.")
@click.option("--rate", default=1_000.0, show_default=True, help="Records a second.")
@click.option("--kind", "kinds", multiple=True, help="Only this kind of fault, or these; all by default.")
@click.option("--redundant", default=0, show_default=True, help="Idle workers (slotmanager.redundant-taskmanager-num).")
@click.option("--election", default="FILE", show_default=True, type=click.Choice(tuple(ELECTIONS)))
@click.option("--lasting", nargs=2, default=(2.0, 8.0), show_default=True, help="How long (s) stops and cuts last.")
def main(
    minutes: float,
    mode: str,
    seed: int | None,
    rate: float,
    kinds: tuple[str, ...],
    redundant: int,
    lasting: tuple[float, float],
    election: str,
) -> None:
    """Run a job through faults, and compare its output."""
    if (lacks := missing()) is not None:
        raise click.ClickException(lacks)
    seed = int(time.time()) if seed is None else seed
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_s:7.1f}  {text}", flush=True)

    say(f"seed {seed}, {mode}")
    elects = election == "ZOOKEEPER"
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as name, standalone(Path(name), seed, elects) as cluster:
        say(f"a cluster of {len(cluster.network.hosts)} hosts")
        done = chaos(
            cluster,
            Path(name),
            minutes,
            mode,
            seed,
            say,
            list(kinds) or None,
            rate,
            lasting,
            redundant=redundant,
            election=election,
        )
    print("\n".join(done.report()))
    say(f"{len(done.faults)} faults: the committed output was equal")


if __name__ == "__main__":
    main()
