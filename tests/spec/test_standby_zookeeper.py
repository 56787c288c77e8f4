"""Drivers that stand by for one another by way of ZooKeeper, so that they may be on any hosts (E7).

The server is real, and the drivers are processes. Each has a ZooKeeper session of its own, as on hosts of their own.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.datastream.environments import local_environment
from tests.spec.test_driver_is_killed import COUNT, lines, started
from tests.spec.test_standby import wait_for_line
from tests.spec.test_two_drivers import wait_for_output
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

from penstock.base.errors import ConfigurationError, OperationError

pytestmark = pytest.mark.slow

KEY = "high-availability.zookeeper."
#: How long a session lasts where a test waits for its end, and where it does not.
SHORT, LONG = "3 s", "60 s"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def by_zookeeper(
    server: ZooKeeperServer, directory: Path, session: str = SHORT, tolerates: bool = False
) -> dict[str, str]:
    """The options; jobs of one test are apart from those of others."""
    return {
        "high-availability.type": "ZOOKEEPER",
        "high-availability.cluster-id": directory.name,
        f"{KEY}quorum": server.quorum,
        f"{KEY}client.session-timeout": session,
        f"{KEY}client.tolerate-suspended-connections": str(tolerates).lower(),
    }


@contextmanager
def two_drivers(
    directory: Path, options: dict[str, str], mode: str = "STREAMING", action: str = "none", rate: int = 1_000
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """The one that leads, and the one that stands by."""
    with (
        started(directory, action, rate, mode, options) as one,
        started(directory, action, rate, mode, options) as other,
    ):
        line = wait_for_line(one, "stands by", "running")
        leader, standby = (other, one) if "stands by" in line else (one, other)
        if leader is one:
            line = wait_for_line(standby, "stands by")
        else:
            wait_for_line(leader, "running")
        assert f"process {leader.pid} on" in line
        yield leader, standby


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_standby_takes_over_when_the_leader_is_killed(server: ZooKeeperServer, tmp_path: Path, mode: str) -> None:
    """E7, G8, G9: when ZooKeeper has not heard of it for the session time-out; each record is committed once."""
    with two_drivers(tmp_path, by_zookeeper(server, tmp_path), mode) as (leader, standby):
        wait_for_output(tmp_path, leader)
        assert standby.poll() is None
        leader.send_signal(signal.SIGKILL)
        out, err = standby.communicate()
        assert out == "executed\n", err
        assert "/chk-" in err
    assert lines(tmp_path) == list(range(COUNT))


def test_a_standby_ends_with_its_leader(server: ZooKeeperServer, tmp_path: Path) -> None:
    """E7: a job that has finished is done, for all its drivers."""
    with two_drivers(tmp_path, by_zookeeper(server, tmp_path, LONG)) as (leader, standby):
        assert leader.communicate()[0] == "executed\n"
        out, err = standby.communicate()
        assert out == "executed\n", err
        assert "there is nothing left to do" in err
    assert lines(tmp_path) == list(range(COUNT))


def test_a_standby_does_not_begin_again_what_was_cancelled(server: ZooKeeperServer, tmp_path: Path) -> None:
    """E5, E7: nor what has failed for good, because its checkpoints are gone then."""
    with two_drivers(tmp_path, by_zookeeper(server, tmp_path, LONG), action="cancel") as (leader, standby):
        wait_for_output(tmp_path, leader)
        leader.send_signal(signal.SIGTERM)
        out, err = standby.communicate()
    assert out == ""
    assert f"while this driver stood by for process {leader.pid} on" in err
    assert "it was cancelled" in err


def test_a_leader_that_was_stopped_for_too_long_is_suspended(server: ZooKeeperServer, tmp_path: Path) -> None:
    """E7, G9: when it goes on, another one runs the job."""
    with two_drivers(tmp_path, by_zookeeper(server, tmp_path)) as (leader, standby):
        wait_for_output(tmp_path, leader)
        leader.send_signal(signal.SIGSTOP)
        wait_for_output(tmp_path, standby)
        leader.send_signal(signal.SIGCONT)
        out, err = leader.communicate()
        assert out == ""
        assert "DeposedError: job 'counts' was suspended: " in err
        out, err = standby.communicate()
        assert out == "executed\n", err
    assert lines(tmp_path) == list(range(COUNT))


def test_without_zookeeper_nobody_leads(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """E7, G9: the job is suspended at once; when ZooKeeper is back, a standby goes on."""
    with (
        zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as own,
        two_drivers(tmp_path, by_zookeeper(own, tmp_path), "MICRO_BATCH") as (leader, standby),
    ):
        wait_for_output(tmp_path, leader)
        own.kill()
        out, err = leader.communicate()
        assert out == ""
        assert "DeposedError: job 'counts' was suspended: this driver no longer leads it, because it has lost" in err
        assert standby.poll() is None
        own.start()
        out, err = standby.communicate()
        assert out == "executed\n", err
    assert lines(tmp_path) == list(range(COUNT))


def test_a_connection_that_is_gone_for_a_while_may_be_tolerated(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """E7: the leader goes on as long as its session lasts, and the standby still stands by."""
    with (
        zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as own,
        two_drivers(tmp_path, by_zookeeper(own, tmp_path, LONG, tolerates=True)) as (leader, standby),
    ):
        own.kill()
        wait_for_line(leader, "the connection to ZooKeeper is lost; the job goes on until its session there is over")
        own.start()
        out, err = leader.communicate()
        assert out == "executed\n", err
        out, err = standby.communicate()
        assert out == "executed\n", err
        assert "there is nothing left to do" in err
    assert lines(tmp_path) == list(range(COUNT))


def test_nobody_waits_for_a_zookeeper_that_is_not_there(tmp_path: Path) -> None:
    """E7: the error names the servers and the option, before anything runs."""
    env = local_environment(
        high_availability__type="ZOOKEEPER",
        high_availability__zookeeper__quorum="127.0.0.1:1",
        high_availability__zookeeper__client__connection_timeout="200 ms",
        execution__checkpointing__dir=str(tmp_path),
    )
    env.from_collection([1]).print()
    with pytest.raises(OperationError, match=r"no ZooKeeper server at 127\.0\.0\.1:1 has answered within 200 ms"):
        env.execute()
    assert list(tmp_path.iterdir()) == []


def test_a_batch_has_no_standby(tmp_path: Path) -> None:
    """E7, I1: it leaves nothing that another driver could begin from."""
    env = local_environment(
        high_availability__type="ZOOKEEPER",
        high_availability__zookeeper__quorum="127.0.0.1:1",
        execution__checkpointing__dir=str(tmp_path),
        execution__runtime_mode="BATCH",
    )
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="is a batch, which leaves no checkpoint to a standby"):
        env.execute()
