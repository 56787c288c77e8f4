"""A streaming job on a standalone Spark whose hosts are really apart, and on a `local-cluster` (E8).

`tests.clusters.chaos` goes on for as long as it is told.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clusters.chaos import chaos
from tests.clusters.job import Commits, Tick, check_output
from tests.clusters.network import ROOT, missing
from tests.clusters.standalone import SPARK_SETTINGS, WORKERS, Standalone, standalone
from tests.spec.kill_executor import wait_for

from penstock.drivers.spark.session import find_java

RECORDS = 6_000
MARK = "what-only-the-job-may-read"
#: A sender and a receiver that do not encrypt.
RECEIVE = (
    "import socket; s = socket.create_server(('0.0.0.0', 4000)); print('listens', flush=True); s.accept()[0].recv(99)"
)
SEND = "import socket, sys; socket.create_connection((sys.argv[1], 4000)).sendall(sys.argv[2].encode())"

pytestmark = [pytest.mark.spark, pytest.mark.slow]
apart = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@dataclass
class Finished:
    """A job that has run to its end on a cluster."""

    folder: Path
    #: name, address and process of its workers, and in which hosts these were
    workers: list[tuple[str, str, int]]
    hosts: set[str | None]
    #: what went from host to host meanwhile, at one of the workers' hosts
    packets: list[bytes]
    ticks: list[Tick]
    log: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def finished(cluster: Standalone) -> Finished:
    with cluster.network[WORKERS[0]].recorded() as one, cluster.network[WORKERS[1]].recorded() as other:
        driver = cluster.drive("driver-1", {"mode": "STREAMING", "rate": 2_000.0, "records": RECORDS, "load": MARK})
        wait_for(lambda: driver.process.poll() is not None or len(driver.workers) == 2, "there are two workers")
        workers = driver.workers
        hosts = {cluster.find_host(process) for _, _, process in workers}
        assert driver.process.wait(120) == 0, driver.last_words()
        # A control: what is not encrypted is seen by those who listen.
        with cluster.network[WORKERS[1]].start([sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            cluster.network[WORKERS[0]].python(SEND, WORKERS[1], f"clear {MARK}").wait()
        wait_for(lambda: any(f"clear {MARK}".encode() in packet for packet in other), "the control")
    commits = Commits(cluster.folder / "out")
    commits.look()
    return Finished(cluster.folder, workers, hosts, [*one, *other], commits.ticks, driver.last_words())


@apart
def test_a_job_spans_hosts(finished: Finished) -> None:
    """E8, G9: its workers have different addresses, records cross over in both directions, each is committed once."""
    check_output(RECORDS, finished.folder / "out")
    assert len({address for _, address, _ in finished.workers}) == 2
    assert len(finished.hosts) == 2
    assert finished.hosts < set(WORKERS)
    assert {tick.subtask for tick in finished.ticks if tick.crossed} == {0, 1}


@apart
def test_who_listens_between_workers_reads_nothing(cluster: Standalone, finished: Finished) -> None:
    """E8: records travel encrypted; the same words, sent in clear over the same link, are read."""
    addresses = {socket.inet_aton(cluster.network[name].address) for name in WORKERS}
    between = [packet for packet in finished.packets if {packet[12:16], packet[16:20]} <= addresses]
    assert sum(map(len, between)) > RECORDS * len(MARK) / 3, "the job's records went over this link"
    heard = [packet for packet in between if MARK.encode() in packet]
    assert heard
    assert all(f"clear {MARK}".encode() in packet for packet in heard)


@apart
@pytest.mark.timeout(420)
def test_output_is_equal_after_a_worker_a_link_and_the_driver_have_failed(cluster: Standalone) -> None:
    """E7, G8, G9: `tests.clusters.chaos` in short; who stood by on another host goes on from the last checkpoint."""
    kinds, said = ["kill a worker", "cut both ways", "kill the driver"], list[str]()
    folder = cluster.folder / "chaos"
    folder.mkdir()
    done = chaos(cluster, folder, 0.5, "STREAMING", 3, said.append, kinds, 500.0, (1.0, 2.0), (0.2, 0.5), most=3)
    assert {fault.kind for fault in done.faults} == {*kinds}, said


def test_micro_batches_run_on_a_local_cluster(tmp_path: Path) -> None:
    """E8, G9: its executors are processes of their own. Each record is made once, though several tasks read it."""
    settings = {**SPARK_SETTINGS, "spark.cores.max": "2", "restart-strategy.type": "none"}
    arguments = {"folder": str(tmp_path), "mode": "MICRO_BATCH", "master": "local-cluster[2,1,1024]", "rate": 10_000.0}
    words = json.dumps({**arguments, "records": 4_000, "settings": settings})
    environment = {**os.environ, "JAVA_HOME": str(find_java(os.environ)), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.clusters.job", words]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    check_output(4_000, tmp_path / "out")
