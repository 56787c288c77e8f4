"""A job in another process: what is asked of it, what it tells, and what is left when its process is gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.server.rest.rig import Handle, a_view, build_graph

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, OperationError
from penstock.base.job import JobExecutionResult, JobStatus
from penstock.drivers.inspection import Answer, AskOutput, AskThreads, FileText, Question, Refused, Threads
from penstock.drivers.running_job import RunningJob, completed
from penstock.runtime.job.slots import Bounds
from penstock.server.session.channel import Answered, Channel, FromProgram, JobBegan, JobEnded, ProgramSide
from penstock.server.session.remote_job import ProgramJobError, RemoteJob, Requests
from penstock.server.session.remote_job import build_graph as bare_graph


class ProgramHandle(Handle):
    """A job of the program's process."""

    def ask_driver(self, question: Question) -> Future[Answer]:
        assert isinstance(question, AskThreads)
        return completed(Threads((("main", "here"),)))

    def engine_page(self, worker_id: str | None = None) -> str | None:
        return None


class Rig:
    """Both ends, in one process."""

    def __init__(self, directory: Path) -> None:
        self.handle = ProgramHandle(a_view())
        self.output = directory / "output"
        self.lost: Future[None] = Future()
        self.closed: Future[str | None] = Future()
        self._began: Future[RemoteJob] = Future()
        ours, self.theirs = socket.socketpair()
        self.channel: Channel[FromProgram] = Channel(ours, FromProgram, "test-session")
        self.requests = Requests(self.channel.send)
        self.channel.listen(self._on_message, self.closed.set_result)

    def begun(self) -> RemoteJob:
        """The job, when the session knows it."""
        self.side = ProgramSide(self.theirs, lambda: self.lost.set_result(None))
        job = cast("RunningJob", self.handle)
        self.side.on_job(job, build_graph(a_view()), Configuration.from_dict({"parallelism.default": "2"}))
        return self._began.result(10)

    def _on_message(self, message: FromProgram) -> None:
        match message:
            case JobBegan():
                assert message.configuration == {"parallelism.default": "2"}
                self._began.set_result(RemoteJob(message, self.requests, self.output))
            case JobEnded():
                self._began.result().on_ended(message)
            case Answered():
                self.requests.on_answer(message)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.channel.close()
    made.closed.result(10)
    if hasattr(made, "side"):
        made.lost.result(10)
    made.theirs.close()


def test_all_that_is_asked_of_a_job_is_asked_of_its_process(rig: Rig) -> None:
    job, handle = rig.begun(), rig.handle
    assert job.first_view.status is JobStatus.RUNNING
    view = job.get_view().result(10)
    assert view == a_view(), "nothing of a view is lost on the way"
    assert bare_graph(view).name == "words"
    assert job.get_bounds().result(10) == {0: Bounds(1, 2), 1: Bounds(1, 2)}
    (value,) = job.get_accumulators().result(10).values()
    assert (type(value).__name__, str(value)) == ("int", "7")
    job.cancel().result(10)
    assert job.trigger_checkpoint().result(10) == 1
    assert job.rescale({"count": 3}).result(10) == {"count": 3}
    assert job.ask_driver(AskThreads()).result(10) == Threads((("main", "here"),))
    assert isinstance(job.ask_worker("worker", AskThreads()).result(10), Refused)
    asked = [job.trigger_savepoint("a"), job.cancel_with_savepoint(), job.stop_with_savepoint(True, "c")]
    handle.savepoint.set_result("there")
    assert [future.result(10) for future in asked] == ["there"] * 3
    assert handle.asked[-3:] == [("savepoint", "a"), ("cancel with savepoint", None), ("stop", True, "c")]


def test_errors_and_cancelled_futures_come_over(rig: Rig) -> None:
    job = rig.begun()
    asked = job.trigger_savepoint("a")
    rig.handle.savepoint.set_exception(CheckpointError("no room"))
    with pytest.raises(CheckpointError, match="no room"):
        asked.result(10)
    rig.handle.savepoint = Future()
    asked = job.trigger_savepoint("a")
    rig.handle.savepoint.cancel()
    rig.handle.savepoint.set_running_or_notify_cancel()
    with pytest.raises(CancelledError):
        asked.result(10)


def test_a_job_that_has_ended_shows_how(rig: Rig) -> None:
    job = rig.begun()
    rig.handle.shown, rig.handle.now = a_view(status=JobStatus.FINISHED), JobStatus.FINISHED
    rig.handle.outcome.set_result(JobExecutionResult(job.get_job_id(), 17, {"words": 7}))
    result = job.get_job_execution_result().result(10)
    assert (result.get_net_runtime(), result.get_all_accumulator_results()) == (17, {"words": "7"})
    assert job.last_view() == rig.handle.shown
    assert job.status() is JobStatus.FINISHED
    rig.side.finish()
    rig.lost.set_result(None)  # a program that is over is not lost


def test_a_job_whose_process_dies_has_failed(rig: Rig) -> None:
    """It is shown as it was last seen, with the reason; what was asked of it fails."""
    job = rig.begun()
    rig.handle.shown = replace(a_view(), restarts=5)
    job.get_view().result(10)
    asked = job.trigger_savepoint("a")
    rig.requests.end("the process is gone")
    assert job.on_process_ended("it ended with -9")
    assert not job.on_process_ended("again")
    with pytest.raises(ProgramJobError, match="it ended with -9"):
        job.get_job_execution_result().result(10)
    for future in (asked, job.trigger_checkpoint()):
        with pytest.raises(OperationError, match="the process is gone"):
            future.result(10)
    view = job.last_view()
    assert view is not None
    assert (view.status, view.restarts, view.failures[0].text) == (JobStatus.FAILED, 5, "it ended with -9")


def test_what_a_program_prints_is_known_when_it_is_gone(rig: Rig) -> None:
    job = rig.begun()
    rig.output.write_text("hello")
    assert job.ask_driver(AskOutput()).result(10) == FileText(b"hello")


@pytest.mark.parametrize(
    "sent",
    [b"\xff\xff\xff\xff", b"\0\0\0\x04none", b"\0\0\0\x01\xc1", b"\0\0\0\x02\x91\x01"],
    ids=["too long", "no message", "no msgpack", "of another type"],
)
def test_a_process_that_sends_no_message_is_cut_off(rig: Rig, sent: bytes) -> None:
    rig.theirs.sendall(sent)
    assert str(rig.closed.result(10)).startswith("it sent no message")
    assert rig.theirs.recv(1) == b""


def test_nothing_is_unpickled(rig: Rig) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("evil",)

    import pickle

    data = pickle.dumps(Evil())
    rig.theirs.sendall(len(data).to_bytes(4, "big") + data)
    assert rig.closed.result(10) is not None
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(data, type=FromProgram)
