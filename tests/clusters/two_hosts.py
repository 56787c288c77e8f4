"""A pipeline between two hosts that are far apart: `python -m tests.clusters.two_hosts --delay 5 --loss 0.001`.

Two jobs run on each of two clusters, one with plain links between the workers' hosts, the other with links that delay
and lose packets. One job goes as fast as it can, and its records by the second are compared; the other goes at a steady
rate, and the times from a record's source to the operator behind the network are compared, of those that crossed over.
With `--split` a job meanwhile has the link between its two hosts cut for some seconds, and its output must be equal.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import click
from tests.clusters.chaos import CUT, WHOLE
from tests.clusters.job import Commits, check_output
from tests.clusters.network import missing
from tests.clusters.standalone import DRIVERS, WORKERS, Standalone, standalone
from tests.clusters.switch import Link
from tests.spec.kill_executor import wait_for

#: Records a second of the job that shows the latency.
STEADY = 1_000.0


@dataclass(frozen=True)
class Figures:
    """Of one kind of link. Latencies (ms) are of records that crossed over."""

    records_s: float
    p50_ms: float
    p99_ms: float

    def __str__(self) -> str:
        return f"{self.records_s:8,.0f} records/s, latency {self.p50_ms:6.1f} ms (p50) {self.p99_ms:7.1f} ms (p99)"


def ran(cluster: Standalone, name: str, rate: float | None, records: int) -> Commits:
    """A job that has run to its end, with the right output; what it committed."""
    folder = cluster.folder / name
    folder.mkdir()
    driver = cluster.drive(DRIVERS[0], build_arguments(folder, rate, records))
    if driver.process.wait():
        raise AssertionError(driver.last_words())
    return commits_of(folder, records)


def build_arguments(folder: Path, rate: float | None, records: int) -> dict[str, Any]:
    return {"folder": str(folder), "mode": "STREAMING", "rate": rate, "records": records, "load": "x" * 100}


def commits_of(folder: Path, records: int) -> Commits:
    check_output(records, folder / "out")
    commits = Commits(folder / "out")
    commits.look()
    return commits


def measured(cluster: Standalone, name: str, link: Link, records: int) -> Figures:
    """Set the links between the workers' hosts, and run both jobs."""
    for one, other in itertools.combinations(WORKERS, 2):
        cluster.network.set_both(one, other, link)
    arrived = sorted(tick.arrived_us for tick in ran(cluster, f"{name}-rate", None, records).ticks)
    first, last = arrived[len(arrived) // 10], arrived[-len(arrived) // 10]  # neither the start nor the end
    steady = ran(cluster, f"{name}-latency", STEADY, int(STEADY * 20)).ticks
    early = min(tick.made_us for tick in steady) + 3_000_000
    late = [(tick.arrived_us - tick.made_us) / 1_000 for tick in steady if tick.crossed and tick.made_us > early]
    cuts = quantiles(late, n=100)
    return Figures(0.8 * records / (last - first) * 1_000_000, cuts[49], cuts[98])


def split(cluster: Standalone, seconds: float) -> str:
    """Cut the link between the two hosts at work; returns what came of it."""
    folder, records = cluster.folder / "split", int(STEADY * (seconds + 30))
    folder.mkdir()
    driver, commits = cluster.drive(DRIVERS[0], build_arguments(folder, STEADY, records)), Commits(folder / "out")

    def has_committed_after(moment_s: float) -> bool:
        commits.look()
        return commits.first_after(moment_s) is not None

    wait_for(lambda: has_committed_after(0), "records are committed")
    one, other = (str(cluster.find_host(process)) for _, _, process in driver.workers)
    begun_s = time.time()
    cluster.network.set_both(one, other, CUT)
    time.sleep(seconds)
    cluster.network.set_both(one, other, WHOLE)
    healed_s = time.time()
    wait_for(lambda: has_committed_after(begun_s), "records are committed that were made after the split")
    committed_s = commits.first_after(begun_s) or 0.0
    if driver.process.wait():
        raise AssertionError(driver.last_words())
    commits_of(folder, records)
    restarts = driver.progress["restarts"]
    return (
        f"{one} and {other} were apart for {healed_s - begun_s:.0f} s: {restarts} restarts; the first new record was "
        f"committed {committed_s - begun_s:.1f} s after the cut, {committed_s - healed_s:.1f} s after its end; "
        "the output was equal"
    )


@click.command()
@click.option("--delay", default=5.0, show_default=True, help="How long (ms) a packet takes, one way.")
@click.option("--loss", default=0.001, show_default=True, help="The share of packets that are lost.")
@click.option("--records", default=300_000, show_default=True, help="Records of the job that goes as fast as it can.")
@click.option("--split", "split_s", default=20.0, show_default=True, help="How long (s) a cut lasts; 0 for none.")
def main(delay: float, loss: float, records: int, split_s: float) -> None:
    """Compare rate and latency, then cut the link."""
    if (lacks := missing()) is not None:
        raise click.ClickException(lacks)
    with tempfile.TemporaryDirectory(prefix="penstock-two-hosts-") as name, standalone(Path(name)) as cluster:
        plain = measured(cluster, "plain", WHOLE, records)
        print(f"plain link           {plain}", flush=True)
        far = measured(cluster, "far", Link(delay, loss), records)
        print(f"{delay:g} ms, {loss:.1%} lost    {far}", flush=True)
        print(f"ratio of the rates   {far.records_s / plain.records_s:.2f}", flush=True)
        for one, other in itertools.combinations(WORKERS, 2):
            cluster.network.set_both(one, other, WHOLE)
        if split_s:
            print(split(cluster, split_s))


if __name__ == "__main__":
    main()
