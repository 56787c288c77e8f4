from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.drivers.event_loop import WAIT_MS_MAX, EventLoopThread, ThreadBackground
from penstock.drivers.spark.heartbeats import STILL_MS, LoopWatch
from penstock.drivers.spark.python_workers import ORPHANED, RELEASED, HostedTask
from penstock.drivers.spark.worker import PATIENCE_MS, FailingGateway, WorkerLoop, WorkerReceiver, host_towards
from penstock.runtime.protocol import (
    CancelTask,
    DeployTask,
    ExecutionId,
    Failure,
    InputChannels,
    ShutDownWorker,
    TaskStateChanged,
)
from penstock.runtime.task.stream_task import task_settings
from penstock.wire.buffers import RecordSerializationError

EXECUTION = ExecutionId(1, 0, 3)


class FakeClock:
    now = 0

    def now_ms(self) -> int:
        return self.now

    steady_ms = now_ms

    def steady_ns(self) -> int:
        return 1_000_000 * self.now


class Task:
    execution = EXECUTION


class FakeExecutor:
    def __init__(self, master: Any) -> None:
        self.shut_down = False
        self.tasks: list[HostedTask] = [Task()]
        self.deadline: int | None = None
        self.work = 0
        self._master = master

    def on_message(self, message: Any) -> None:
        if isinstance(message, ShutDownWorker):
            self.shut_down = True
        elif isinstance(message, CancelTask):
            self._master.send(TaskStateChanged(message.execution, "CANCELED"))
            self.tasks = []

    def on_buffer(self, channel: Any, buffer: Any) -> None:
        pass

    def on_credit(self, channel: Any, credit: int) -> None:
        pass

    def step(self) -> bool:
        self.work -= 1
        return self.work >= 0

    def next_deadline(self) -> int | None:
        return self.deadline

    def close(self) -> None:
        pass


class Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


class FakeEndpoint:
    """Plays a script, one entry a call; each wait passes on the clock."""

    master_silence_ms = 0

    def __init__(self, clock: FakeClock, *script: Callable[[WorkerReceiver], None]) -> None:
        self.waits: list[int] = []
        self._clock = clock
        self._script = deque(script)

    def receive(self, timeout_ms: int, receiver: WorkerReceiver) -> bool:
        self.waits.append(timeout_ms)
        self._clock.now += timeout_ms
        if self._script:
            self._script.popleft()(receiver)
        else:
            receiver.on_message(ShutDownWorker("the end"))
        return True


class World:
    def __init__(self, *script: Callable[[WorkerReceiver], None]) -> None:
        self.clock = FakeClock()
        self.sent = Sent()
        gateway = FailingGateway(self.sent)
        self.executor = FakeExecutor(gateway)
        self.endpoint = FakeEndpoint(self.clock, *script)
        self.background = ThreadBackground("test", 0, lambda: None)
        receiver = WorkerReceiver(self.executor, gateway, self.clock)
        coroutines = EventLoopThread("test-async", lambda: None)
        watch = self.watch = LoopWatch(self.clock)
        self.loop = WorkerLoop(
            self.endpoint, self.executor, receiver, self.background, coroutines, self.clock, 5_000, watch
        )


def nothing(receiver: WorkerReceiver) -> None:
    pass


def deploy(receiver: WorkerReceiver) -> None:
    receiver.on_message(
        DeployTask(
            execution=EXECUTION,
            job_id="job",
            task_name="task",
            parallelism=1,
            max_parallelism=1,
            program=b"",
            inputs=(InputChannels(0, 0, ((0, "peer"), (1, "other"))),),
            outputs=(),
            peers={},
            settings=task_settings(Configuration()),
            restored_checkpoint_id=None,
            restored={},
        )
    )


def test_it_polls_while_there_is_work_and_waits_when_there_is_none() -> None:
    world = World(nothing, nothing, nothing, nothing)
    world.executor.work = 2
    assert world.loop.run() == (RELEASED, "")
    assert world.endpoint.waits == [0, 0, 0, WAIT_MS_MAX, WAIT_MS_MAX]


def test_it_waits_no_longer_than_until_the_next_deadline() -> None:
    world = World(nothing)
    world.executor.deadline = 30
    world.loop.run()
    assert world.endpoint.waits == [0, 30]


def test_it_ends_when_the_master_is_silent() -> None:
    world = World(nothing)
    world.endpoint.master_silence_ms = 5_001
    assert world.loop.run() == (ORPHANED, "no message from the job master for 5001 ms")


def test_it_ends_when_the_master_is_lost() -> None:
    world = World(lambda receiver: receiver.on_master_lost("the connection broke"))
    assert world.loop.run() == (ORPHANED, "the connection broke")


def test_it_ends_when_its_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(nothing)
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert world.loop.run()[0] == ORPHANED


def test_a_lost_peer_fails_the_tasks_with_channels_to_it_after_a_moment() -> None:
    script = [deploy, lambda receiver: receiver.on_peer_lost("peer", "the connection broke"), nothing, nothing]
    world = World(*script)
    world.loop.run()
    failure = Failure("the connection to peer was lost: the connection broke")
    assert world.sent.messages == [TaskStateChanged(EXECUTION, "FAILED", failure)]
    assert world.clock.now >= PATIENCE_MS


def test_a_lost_peer_is_nothing_to_tasks_without_channels_to_it() -> None:
    world = World(deploy, lambda receiver: receiver.on_peer_lost("stranger", "x"), nothing, nothing)
    world.loop.run()
    assert world.sent.messages == []


def test_records_that_cannot_be_read_fail_the_tasks() -> None:
    def unreadable(receiver: WorkerReceiver) -> None:
        raise RecordSerializationError("no such class here")

    world = World(deploy, unreadable)
    world.loop.run()
    assert [(m.state, m.failure.reason) for m in world.sent.messages] == [("FAILED", "no such class here")]


def test_a_task_that_is_cancelled_for_no_failure_is_cancelled() -> None:
    world = World(deploy, lambda receiver: receiver.on_message(CancelTask(EXECUTION)))
    world.loop.run()
    assert world.sent.messages == [TaskStateChanged(EXECUTION, "CANCELED")]


def test_the_host_towards_loopback_is_loopback() -> None:
    assert host_towards("tcp://127.0.0.1:5555") == "127.0.0.1"


def test_a_loop_that_is_held_up_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """F4: what a worker is at is worth a word once it has been at it for a while, and runs something of the user's."""
    monkeypatch.setattr("penstock.drivers.spark.heartbeats.where_is", lambda thread: "operator 'map' " + "x" * 1_000)
    clock = FakeClock()
    watch = LoopWatch(clock)
    clock.now += STILL_MS - 1
    assert watch.state() == ("", 0, STILL_MS - 1)
    clock.now += 1
    whereabouts, still_ms, _ = watch.state()
    assert whereabouts.startswith("operator 'map' xx")
    assert len(whereabouts) <= 200
    assert still_ms == STILL_MS
    watch.turned(clock.now)
    assert watch.state() == ("", 0, STILL_MS)


def test_a_loop_is_busy_while_it_does_not_wait() -> None:
    """E2: of 1,000 ms in which the loop waited and 40 ms in which it worked, 40 ms were busy."""

    class Working(FakeExecutor):
        def step(self) -> bool:
            world.clock.now += 20
            return super().step()

    world = World(lambda receiver: None, lambda receiver: None)
    world.executor.__class__ = Working
    world.executor.deadline = 1_020
    world.loop.run()
    assert sum(world.endpoint.waits) == 1_000
    assert world.watch.state().busy_ms == 40
