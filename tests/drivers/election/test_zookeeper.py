"""Who leads by an election in ZooKeeper, with a real server (E7)."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, OperationError
from penstock.drivers import leader_election as zookeeper
from penstock.drivers.client.submit import build_election
from penstock.drivers.leader_election import Leader, ZooKeeperElection, ZooKeeperSettings, disconnect

#: Longer than a busy machine lets a process wait, except where a test waits for the end of a session.
SESSION_MS = 60_000
SHORT_SESSION_MS = 1_000
#: How long a client of a server that is gone tries to say that its session is over.
CLOSE_MS_MAX = 5_000


@pytest.fixture(autouse=True, scope="module")
def no_client_is_left() -> Iterator[None]:
    """Clients draw random pauses, and Hypothesis takes it amiss when that happens in a test of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zookeeper, "disconnect", lambda client, ms: disconnect(client, min(ms, CLOSE_MS_MAX)))
        yield
    for thread in threading.enumerate():
        if thread.name == "penstock-zookeeper-close":
            thread.join(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def settings(server: ZooKeeperServer, *, session_ms: int = SESSION_MS, **options: Any) -> ZooKeeperSettings:
    return ZooKeeperSettings(server.quorum, "/penstock/default", session_ms, 60_000, **options)


class Candidate(ZooKeeperElection):
    """One that notes what it is told, and waits in a thread if it has to."""

    def __init__(self, server: ZooKeeperServer, job: str, **options: Any) -> None:
        super().__init__(settings(server, **options), job)
        self.said: list[str] = []
        self.heard: list[str] = []
        self.stands_by = threading.Event()

    def say(self, line: str) -> None:
        self.said.append(line)
        self.stands_by.set()

    def leads(self) -> Leader | None:
        former = self.wait(self.say)
        self.when_lost(self.heard.append)
        return former


@contextmanager
def candidates(server: ZooKeeperServer, job: str, *, count: int = 2, **options: Any) -> Iterator[list[Candidate]]:
    made = [Candidate(server, job, **options) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.end(None)


@contextmanager
def standing_by(candidate: Candidate) -> Iterator[Future[Leader | None]]:
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(candidate.leads)
        candidate.stands_by.wait()
        assert not outcome.done()
        yield outcome


def until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.01)


@contextmanager
def open_client(server: ZooKeeperServer, **options: Any) -> Iterator[KazooClient]:
    client = KazooClient(server.quorum, **options)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def left(server: ZooKeeperServer, job: str) -> tuple[list[str], bytes]:
    """The candidates of a job, and what its node says."""
    with open_client(server) as client:
        path = f"/penstock/default/{job}"
        return client.get_children(path), client.get(path)[0]


def end_session(server: ZooKeeperServer, candidate: Candidate) -> None:
    """As the server does when it hears nothing for too long. The candidate's client may come back in between."""
    session, node = candidate._client.client_id, candidate._node(candidate._mine)
    with open_client(server) as other:
        while other.exists(node):
            with open_client(server, client_id=session):
                pass


@pytest.mark.parametrize(("end", "heard"), [(None, None), ("it was cancelled", "it was cancelled")])
def test_the_next_one_leads_when_the_leader_makes_way(
    server: ZooKeeperServer, end: str | None, heard: str | None
) -> None:
    """E7: it hears how the job ended, if it did; nothing but the job's node is left in the end."""
    job = f"ends-{heard}"
    with candidates(server, job) as (leader, standby):
        assert leader.leads() is None
        with standing_by(standby) as outcome:
            leader.end(end)
            former = outcome.result()
        assert (None if former is None else former.end) == heard
        assert standby.said[0].startswith("stands by: process ")
        assert standby.lost is None
        standby.end("FINISHED")
    names, data = left(server, job)
    assert names == []
    assert b'"end":"FINISHED"' in data
    assert len(data) < 200


def test_who_leads_is_elected_again_and_again(server: ZooKeeperServer) -> None:
    """E7: an election ends with its job, so a program may run several of one name."""
    for _ in range(3):
        with candidates(server, "again", count=1) as (candidate,):
            assert candidate.leads() is None
            candidate.end("FINISHED")
        assert candidate.said == []


def test_what_an_election_before_came_to_is_not_heard(server: ZooKeeperServer) -> None:
    """E7: not even by one that stood by for a driver that died before it began."""
    with candidates(server, "before") as (before, standby):
        before.leads()
        before.end("it failed")
        with open_client(server) as other:
            other.create("/penstock/default/before/somebody-candidate-", b"", ephemeral=True, sequence=True)
            pool = ThreadPoolExecutor(1)
            outcome = pool.submit(standby.leads)
            until(lambda: len(other.get_children("/penstock/default/before")) == 2)
            assert not outcome.done()
        assert outcome.result() is None
        pool.shutdown()


def test_candidates_lead_in_the_order_in_which_they_came(server: ZooKeeperServer) -> None:
    """E7: each one that stands by hears who leads now."""
    with candidates(server, "order", count=3) as (first, second, third):
        first.leads()
        with standing_by(second) as of_second, standing_by(third) as of_third:
            first.end(None)
            assert of_second.result() is None
            assert not of_third.done()
            second.end("it failed")
            former = of_third.result()
            assert former is not None
            assert former.end == "it failed"


def test_one_that_stands_by_may_leave(server: ZooKeeperServer) -> None:
    """E7: it leaves nothing behind."""

    class Left(Exception): ...

    def leave(line: str) -> None:
        raise Left

    with candidates(server, "leaves") as (leader, standby):
        leader.leads()
        with pytest.raises(Left):
            standby.wait(leave)
        assert len(left(server, "leaves")[0]) == 1


def test_a_leader_whose_session_is_over_leads_no_longer(server: ZooKeeperServer) -> None:
    """E7: and does not speak for the job any more, because another one leads it."""
    with candidates(server, "expired", tolerates_suspended=True) as (leader, standby):
        leader.leads()
        with standing_by(standby) as outcome:
            end_session(server, leader)
            assert outcome.result() is None
            until(lambda: leader.heard)
            assert leader.heard == ["its session in ZooKeeper is over"]
            leader.end("it failed")
            assert b"failed" not in left(server, "expired")[1]
            assert standby.lost is None


def test_one_that_has_not_heard_that_its_session_is_over_does_not_speak_for_the_job(server: ZooKeeperServer) -> None:
    """E7: ZooKeeper looks whether its node is there, in the same transaction."""
    with candidates(server, "unheard") as (leader, standby):
        leader.leads()
        with standing_by(standby) as outcome:
            leader._client.remove_listener(leader._on_state)
            end_session(server, leader)
            leader.end("it failed")
            assert outcome.result() is None
        assert "standbys were not told that the job is over" in leader.said[-1]
        assert b"failed" not in left(server, "unheard")[1]


def test_one_that_stands_by_comes_back_with_a_new_session(server: ZooKeeperServer) -> None:
    """E7: its former node is gone, so it stands for election again."""
    with candidates(server, "comes-back") as (leader, standby):
        leader.leads()
        with standing_by(standby) as outcome:
            former = standby._mine
            end_session(server, standby)
            until(lambda: standby._mine != former)
            leader.end("it failed")
            assert outcome.result() is not None


@pytest.mark.slow
def test_a_leader_without_connection_leads_no_longer(tmp_path: Path) -> None:
    """E7: unless that is tolerated; then it speaks for the job when the server is back."""
    with (
        zookeeper_server(tmp_path) as own,
        candidates(own, "strict", count=1) as (strict,),
        candidates(own, "tolerant", tolerates_suspended=True) as (tolerant, standby),
    ):
        strict.leads()
        tolerant.leads()
        with standing_by(standby) as outcome:
            own.kill()
            until(lambda: strict.heard)
            assert "tolerate-suspended-connections is false" in strict.heard[0]
            own.start()
            tolerant.end("it failed")
            former = outcome.result()
            assert former is not None
            assert former.end == "it failed"
        assert tolerant.lost is None


def test_no_connection_is_tolerated_for_longer_than_a_session(tmp_path: Path) -> None:
    """E7: by then, another one may lead. The job's end is not said, and nobody waits for the server for ever."""
    with zookeeper_server(tmp_path) as own:
        candidate = Candidate(own, "job", session_ms=SHORT_SESSION_MS, tolerates_suspended=True)
        candidate.leads()
        own.kill()
        until(lambda: candidate.heard)
        assert f"no connection to ZooKeeper for {SHORT_SESSION_MS} ms" in candidate.heard[0]
        candidate.end("FINISHED")


def test_a_server_that_hangs_is_as_good_as_none(tmp_path: Path) -> None:
    """E7: the leader hears nothing, and makes way for the next one, which leads when the server goes on."""
    with (
        zookeeper_server(tmp_path) as own,
        candidates(own, "hangs", session_ms=SHORT_SESSION_MS) as (leader, standby),
    ):
        leader.leads()
        with standing_by(standby) as outcome:
            own.send_signal(signal.SIGSTOP)
            until(lambda: leader.heard)
            leader.end("FINISHED")
            assert not outcome.done()
            own.send_signal(signal.SIGCONT)
            assert outcome.result() is None


def test_a_leader_makes_way_before_its_job_has_ended(server: ZooKeeperServer) -> None:
    """E7: a function may hold the job up for an hour, and the fence in the store keeps the two apart."""
    with candidates(server, "makes-way") as (leader, standby):
        leader.leads()
        with standing_by(standby) as outcome:
            leader._client._connection._socket.shutdown(socket.SHUT_RDWR)
            assert outcome.result() is None
        assert "it has lost its connection" in leader.heard[0]


def test_a_server_that_does_not_answer_is_passed_over(server: ZooKeeperServer) -> None:
    """E7: two of three servers take connections, and say nothing; in whichever order they are tried."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        silent = [f"127.0.0.1:{mute.getsockname()[1]}" for mute in (one, other)]
        quorum = ",".join([*silent, server.quorum])
        patient = replace(settings(server, session_ms=60_000), quorum=quorum, connection_timeout_ms=6_000)
        candidate = ZooKeeperElection(patient, "passed")
        assert candidate.wait(print) is None
        candidate.end(None)


def test_nodes_may_be_the_creators_own(server: ZooKeeperServer) -> None:
    """E7: who comes without its name and password, reads nothing and cannot stand for election."""
    mine: dict[str, Any] = {"acl": "creator", "authorization": (("digest", "drivers:secret"),)}
    assert "secret" not in repr(settings(server, **mine))
    with candidates(server, "own", **mine) as (leader, standby):
        leader.leads()
        with open_client(server) as other, pytest.raises(NoAuthError):
            other.get("/penstock/default/own")
        with candidates(server, "own", count=1) as (stranger,), pytest.raises(OperationError, match="NoAuthError"):
            stranger.leads()
        with standing_by(standby) as outcome:
            leader.end("it failed")
            assert outcome.result() is not None


# --- options ---------------------------------------------------------------------------------------------------------


def configured(**options: str) -> Any:
    mine = {
        "high-availability.type": "ZOOKEEPER",
        "high-availability.zookeeper.quorum": "localhost:2181",
        "execution.checkpointing.dir": "s3://bucket/counts",
    }
    changed = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return build_election(Configuration.from_dict({k: v for k, v in (mine | changed).items() if v}), "my/job")


def test_a_job_is_found_by_root_cluster_id_and_name() -> None:
    """E7: drivers that differ in one of them are no standbys of each other."""
    assert configured()._path.startswith("/penstock/default/my%2Fjob-")
    path = configured(high_availability__cluster_id="a/b", high_availability__zookeeper__path__root="/flink")._path
    assert path.startswith("/flink/a/b/my%2Fjob-")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"execution__checkpointing__dir": ""}, "is ZOOKEEPER: set execution.checkpointing.dir too"),
        ({"execution__checkpointing__dir": "memory://x"}, "standbys need a directory that all can reach"),
        ({"high_availability__zookeeper__quorum": ""}, "set high-availability.zookeeper.quorum too"),
        ({"high_availability__zookeeper__quorum": "a:1,b:c"}, "'b:c' is no server: write host:port,host:port"),
        ({"high_availability__zookeeper__quorum": "a:1/x"}, "goes into high-availability.zookeeper.path.root"),
        ({"high_availability__zookeeper__path__root": "/a/../b"}, "is no path of ZooKeeper, such as /penstock"),
        ({"high_availability__cluster_id": "/"}, "is no path of ZooKeeper, such as /default"),
        ({"high_availability__zookeeper__client__acl": "creator"}, "client.authorization too"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], words: str) -> None:
    """E7: before anything runs."""
    with pytest.raises(ConfigurationError) as refused:
        configured(**options)
    assert words in str(refused.value)


def test_the_client_of_zookeeper_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: it is installed by those who use it."""
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(
        ConfigurationError, match=r'needs the package kazoo: pip install "penstock-streams\[zookeeper\]"'
    ):
        configured()
