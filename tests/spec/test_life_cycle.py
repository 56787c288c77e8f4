"""The life cycle of tasks and operators, call by call: the listing of a job from setup to close (F1, F3, F4).

Each listing shows one task from its deployment to its end: what is called in which order on the operators of its chain,
what it sends on its edge, and from when on the checkpoint that it waits for exists. Time is virtual.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.spec.life_cycle_rig import (
    DOWNSTREAM,
    LOG,
    UPSTREAM,
    Logging,
    calls,
    lines,
    listing,
    logging_operator,
    logging_source,
    two_chains,
    written_down,
)
from tests.spec.virtual_job import Timed, VirtualJob, environment, get_error

from penstock.base.job import JobStatus
from penstock.plan.transformation import Transformation, Upstream

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

AN_HOUR: Any = {"execution.checkpointing.interval": "1 h"}
CHECKPOINTS_OFF: Any = {"execution.checkpointing.interval": None}
ENDLESS = Timed(1_000_000, (None,))
#: One record, and nothing more.
BOUNDED = Timed(1_000, (1,))
ABOVE = (*UPSTREAM, "edge", "store")
BELOW = (*DOWNSTREAM, "store")

BEGIN_ABOVE = """
    setup: a3 a2 a1 source
    initialize_state: a3 a2 a1 source
    open: a3 a2 a1 source
    process: a1 a2 a3
"""
BEGIN_BELOW = """
    setup: sink b3 b2 b1
    initialize_state: sink b3 b2 b1
    open: sink b3 b2 b1
    process: b1 b2 b3 sink
"""
FINISH_ABOVE = """
    MAX_WATERMARK: a1 a2 a3 edge
    end_input: source
    quiesce_timers: source
    finish: source
    end_input: a1
    quiesce_timers: a1
    finish: a1
    end_input: a2
    quiesce_timers: a2
    finish: a2
    end_input: a3
    quiesce_timers: a3
    finish: a3
    EndOfData(drain=True): edge
"""
FINISH_BELOW = """
    MAX_WATERMARK: b1 b2 b3 sink
    end_input: b1
    quiesce_timers: b1
    finish: b1
    end_input: b2
    quiesce_timers: b2
    finish: b2
    end_input: b3
    quiesce_timers: b3
    finish: b3
    end_input: sink
    quiesce_timers: sink
    finish: sink
"""


def last_checkpoint(kind: str) -> tuple[str, str]:
    """What every task that ends well does after its data: (above the edge, below it)."""
    above = f"""
        barrier 1: edge
        snapshot 1: source a1 a2 a3
        {kind} 1 exists: store
        notified of 1: source a1 a2 a3
        close: source a1 a2 a3
        EndOfPartition: edge
    """
    below = f"""
        snapshot 1: b1 b2 b3 sink
        {kind} 1 exists: store
        notified of 1: b1 b2 b3 sink
        close: b1 b2 b3 sink
    """
    return above, below


def expect(*parts: str) -> list[str]:
    return [line for part in parts for line in lines(part)]


# --- ends that are no failure ---------------------------------------------------------------------------------------


def test_normal_end() -> None:
    """F1, F3, F4, F6: a job whose source has nothing more goes through the whole listing from setup to close."""
    with written_down():
        job = two_chains(BOUNDED, **AN_HOUR)
        assert job.run() is JobStatus.FINISHED
    above, below = last_checkpoint("checkpoint")
    assert listing(ABOVE) == expect(BEGIN_ABOVE, FINISH_ABOVE, above)
    assert listing(BELOW) == expect(BEGIN_BELOW, FINISH_BELOW, below)


def test_normal_end_without_checkpoints() -> None:
    """F3: with checkpoints off nothing is waited for but the end of the inputs; the order is the same."""
    with written_down():
        job = two_chains(BOUNDED, **CHECKPOINTS_OFF)
        assert job.run() is JobStatus.FINISHED
    close_above = "close: source a1 a2 a3\nEndOfPartition: edge"
    assert listing(ABOVE) == expect(BEGIN_ABOVE, FINISH_ABOVE, close_above)
    assert listing(BELOW) == expect(BEGIN_BELOW, FINISH_BELOW, "close: b1 b2 b3 sink")


@pytest.mark.parametrize("options", [AN_HOUR, CHECKPOINTS_OFF], ids=["checkpoints", "checkpoints off"])
def test_stop_with_savepoint_and_drain(options: Any, store_directory: Any) -> None:
    """F3, H2: with drain a source that would go on for ever ends as if it had nothing more, and then sends the
    savepoint's barrier; tasks wait for the savepoint, with and without periodic checkpoints."""
    with written_down():
        job = two_chains(ENDLESS, **options)
        job.at(5_000, lambda: job.stop_with_savepoint(True, str(store_directory)))
        assert job.run() is JobStatus.FINISHED
    above, below = last_checkpoint("savepoint")
    assert listing(ABOVE) == expect(BEGIN_ABOVE, FINISH_ABOVE, above)
    assert listing(BELOW) == expect(BEGIN_BELOW, FINISH_BELOW, below)


@pytest.mark.parametrize("options", [AN_HOUR, CHECKPOINTS_OFF], ids=["checkpoints", "checkpoints off"])
def test_stop_with_savepoint(options: Any, store_directory: Any) -> None:
    """F3, F4, H2: without drain there is neither MAX_WATERMARK nor end_input nor finish: EndOfData says so, and what
    the operators hold goes into the savepoint, for the job that begins from it."""
    with written_down():
        job = two_chains(ENDLESS, **options)
        job.at(5_000, lambda: job.stop_with_savepoint(False, str(store_directory)))
        assert job.run() is JobStatus.FINISHED
    above, below = last_checkpoint("savepoint")
    assert listing(ABOVE) == expect(BEGIN_ABOVE, "EndOfData(drain=False): edge", above)
    assert listing(BELOW) == expect(BEGIN_BELOW, below)


def test_each_step_crosses_the_edge_before_it_is_taken_below() -> None:
    """F3: below the edge nothing of the end happens before the event that causes it was sent, and nothing is closed
    before EndOfPartition has come; above it EndOfPartition follows close."""
    with written_down():
        assert two_chains(BOUNDED, **AN_HOUR).run() is JobStatus.FINISHED
    place = {(where, what): i for i, (_, where, what) in enumerate(LOG)}
    for cause, effect in [
        (("edge", "MAX_WATERMARK"), ("b1", "MAX_WATERMARK")),
        (("edge", "EndOfData(drain=True)"), ("b1", "end_input")),
        (("edge", "barrier 1"), ("b1", "snapshot 1")),
        (("sink", "snapshot 1"), ("store", "checkpoint 1 exists")),
        (("store", "checkpoint 1 exists"), ("source", "close")),
        (("a3", "close"), ("edge", "EndOfPartition")),
        (("edge", "EndOfPartition"), ("b1", "close")),
    ]:
        assert place[cause] < place[effect], f"{cause} comes first"


def test_normal_end_of_parallel_tasks() -> None:
    """F3: at parallelism 2, with subtasks that end at different times, each goes through the listing by itself; those
    below the edge finish when both above have drained."""
    with written_down():
        job = two_chains(Timed(1_000, (1, 4)), parallelism=2, **AN_HOUR)
        assert job.run() is JobStatus.FINISHED
    above, below = last_checkpoint("checkpoint")
    for subtask in range(2):
        begin_above, begin_below = lines(BEGIN_ABOVE)[:-1], lines(BEGIN_BELOW)[:-1]
        assert listing(ABOVE, subtask, ("process",)) == begin_above + expect(FINISH_ABOVE, above)
        assert listing(BELOW, subtask, ("process",)) == begin_below + expect(FINISH_BELOW, below)
    last_end = max(i for i, (_, where, what) in enumerate(LOG) if (where, what) == ("edge", "EndOfData(drain=True)"))
    assert min(i for i, (_, where, what) in enumerate(LOG) if (where, what) == ("b1", "finish")) > last_end


def test_a_task_that_has_finished_waits_for_the_next_checkpoint() -> None:
    """F3, F6: a subtask that finishes while others go on is closed after the next checkpoint, not before, and not
    later; the checkpoint that was complete by then does not do."""
    with written_down():
        job = two_chains(Timed(1_000, (13, 26)), parallelism=2)  # the first ends between checkpoints 1 and 2
        assert job.run() is JobStatus.FINISHED
    first = [(w, what) for s, w, what in LOG if s in (0, -1) and w in ("source", "edge", "store")]
    begin = first.index(("source", "finish"))
    assert first[begin : begin + 8] == [
        ("source", "finish"),
        ("edge", "EndOfData(drain=True)"),
        ("edge", "barrier 2"),
        ("source", "snapshot 2"),
        ("store", "checkpoint 2 exists"),
        ("source", "notified of 2"),
        ("source", "close"),
        ("edge", "EndOfPartition"),
    ]


# --- a second input -------------------------------------------------------------------------------------------------


def test_two_inputs_end_one_by_one() -> None:
    """F3: an operator with two inputs hears of the end of each when it comes, goes on with the other one, and finishes
    when both have ended."""
    env = environment(1, **AN_HOUR)
    one = logging_source(env, Timed(1_000, (2,)), "one")
    other = logging_source(env, Timed(1_500, (4,)), "other")
    inputs = tuple(Upstream(s.upstreams[0].transformation, input_index=i) for i, s in enumerate((one, other)))
    env.add(Transformation("Two", _Two, inputs, name="two"))
    with written_down():
        assert VirtualJob(env).run() is JobStatus.FINISHED
    assert listing(("two",), without=("setup", "initialize_state", "open"))[:-3] == lines("""
        input 0: two
        input 1: two
        input 0: two
        end_input 0: two
        input 1: two two two
        MAX_WATERMARK: two
        end_input 1: two
        quiesce_timers: two
        finish: two
    """)


class _Two(Logging):
    def __init__(self) -> None:
        super().__init__(where="two")

    def process_batch(self, batch: Any, input_index: int = 0) -> None:
        self.note(f"input {input_index}")


def test_a_union_ends_with_its_last_stream() -> None:
    """F3: several streams into one input are one input: it ends when all of them have."""
    env = environment(1, **AN_HOUR)
    one = logging_source(env, Timed(1_000, (1,)), "one")
    other = logging_source(env, Timed(1_000, (3,)), "other")
    logging_operator(one.union(other), "both")
    with written_down():
        assert VirtualJob(env).run() is JobStatus.FINISHED
    assert listing(("both",), without=("setup", "initialize_state", "open"))[:-3] == lines("""
        process: both both both both
        MAX_WATERMARK: both
        end_input: both
        quiesce_timers: both
        finish: both
    """)


# --- cancelled, failed ----------------------------------------------------------------------------------------------


def closed_once() -> list[str]:
    """Every operator, as each is closed once."""
    assert sorted(calls("close")) == sorted(UPSTREAM + DOWNSTREAM)
    return calls("close")


def test_cancel() -> None:
    """F4: a job that is cancelled closes every operator once and calls nothing else; nothing more goes downstream."""
    with written_down():
        job = two_chains(ENDLESS, **AN_HOUR)
        job.at(5_000, job.cancel)
        assert job.run() is JobStatus.CANCELED
    assert listing(ABOVE) == expect(BEGIN_ABOVE, "close: source a1 a2 a3")
    assert listing(BELOW) == expect(BEGIN_BELOW, "close: b1 b2 b3 sink")


def test_cancel_while_waiting_for_the_last_checkpoint() -> None:
    """F4: a task that has finished, and waits, closes when it is cancelled; its EndOfPartition is never sent."""
    with written_down():
        job = two_chains(Timed(1_000, (1, None)), parallelism=2, **AN_HOUR)
        job.at(5_000, job.cancel)
        assert job.run() is JobStatus.CANCELED
    assert listing(ABOVE, 0) == expect(BEGIN_ABOVE, FINISH_ABOVE, "close: source a1 a2 a3")
    assert "finish: source" not in listing(ABOVE, 1)
    assert sorted(calls("close")) == sorted(2 * (UPSTREAM + DOWNSTREAM))


def test_cancel_with_savepoint(store_directory: Any) -> None:
    """F4, H1: a job that is cancelled with a savepoint takes it while it runs: nothing finishes or is notified."""
    with written_down():
        job = two_chains(ENDLESS, **AN_HOUR)
        job.at(5_000, lambda: job.cancel_with_savepoint(str(store_directory)))
        assert job.run() is JobStatus.CANCELED
    taken = "barrier 1: edge\nsnapshot 1: source a1 a2 a3\nsavepoint 1 exists: store\nclose: source a1 a2 a3"
    assert listing(ABOVE) == expect(BEGIN_ABOVE, taken)


NO_RESTART: Any = {**AN_HOUR, "restart-strategy.type": "none"}


@pytest.mark.parametrize("where", ["a1", "a3", "b1", "sink"])
def test_failure_in_process(where: str) -> None:
    """F4: what raises in the middle of the data: no operator finishes, each is closed once, nothing says an end."""
    with written_down():
        job = two_chains(BOUNDED, fails=(where, "process"), **NO_RESTART)
        assert job.run() is JobStatus.FAILED
    assert f"{where} fails in process" in job.failure()
    closed_once()
    if where in UPSTREAM:
        assert not {"MAX_WATERMARK", "end_input", "finish", "EndOfData(drain=True)"} & {what for _, _, what in LOG}
    assert calls("EndOfPartition") == []
    assert not set(DOWNSTREAM) & set(calls("finish"))


@pytest.mark.parametrize("call", ["setup", "initialize_state", "open"])
@pytest.mark.parametrize("where", ["source", "a2", "b1", "sink"])
def test_failure_before_the_first_record(where: str, call: str) -> None:
    """F1, F4: what raises on the way to open is closed with all the others, those that are not open yet included."""
    with written_down():
        job = two_chains(ENDLESS, fails=(where, call), **NO_RESTART)
        assert job.run() is JobStatus.FAILED
    assert f"{where} fails in {call}" in job.failure()
    mine = UPSTREAM if where in UPSTREAM else DOWNSTREAM
    before = tuple(reversed(mine))[: tuple(reversed(mine)).index(where) + 1]
    assert [w for w in calls(call) if w in mine] == list(before), "tail to head, and not beyond the failure"
    assert [w for w in calls("close") if w in mine] == list(mine)
    assert all(calls("close").count(w) <= 1 for w in UPSTREAM + DOWNSTREAM)
    assert calls("finish") == []


@pytest.mark.parametrize("where", ["source", "a2", "a3", "b1", "sink"])
def test_failure_in_finish(where: str) -> None:
    """F4: when an operator cannot finish, those after it in the chain, and below the edge, do not; all are closed."""
    with written_down():
        job = two_chains(BOUNDED, fails=(where, "finish"), **NO_RESTART)
        assert job.run() is JobStatus.FAILED
    order = UPSTREAM + DOWNSTREAM
    assert calls("finish") == list(order[: order.index(where) + 1])
    closed_once()
    assert ("EndOfData(drain=True)" in {what for _, _, what in LOG}) == (where in DOWNSTREAM)
    assert calls("EndOfPartition") == []
    assert f"{where} fails in finish" in job.failure()


@pytest.mark.parametrize("where", ["source", "a2", "sink"])
def test_failure_in_close(where: str) -> None:
    """F4: an operator that cannot close keeps no other one from being closed, once, and the job has failed."""
    with written_down():
        job = two_chains(BOUNDED, fails=(where, "close"), **NO_RESTART)
        assert job.run() is JobStatus.FAILED
    closed_once()
    assert f"{where} fails in close" in job.failure()


@pytest.mark.parametrize("where", ["source", "a2", "sink"])
def test_failure_in_close_of_a_cancelled_job(where: str) -> None:
    """F4: a job that is cancelled is cancelled, whatever an operator thinks of being closed."""
    with written_down():
        job = two_chains(ENDLESS, fails=(where, "close"), **NO_RESTART)
        job.at(5_000, job.cancel)
        assert job.run() is JobStatus.CANCELED
    closed_once()


def test_failure_of_the_snapshot_that_ends_the_job(store_directory: Any) -> None:
    """F4, H2: when the savepoint that would end the job fails, nothing of the end counts: the tasks are closed without
    EndOfPartition, and the next attempt runs as if nobody had asked."""
    with written_down():
        job = two_chains(ENDLESS, fails=("b2", "snapshot 1"), **AN_HOUR)
        stopped: list[Any] = []
        job.at(5_000, lambda: stopped.append(job.stop_with_savepoint(False, str(store_directory))))
        job.at(20_000, job.cancel)
        assert job.run() is JobStatus.CANCELED
    assert "no savepoint under" in get_error(stopped[0])
    assert calls("EndOfPartition") == []
    assert calls("EndOfData(drain=False)") == ["edge"]
    assert sorted(calls("open")) == sorted(calls("close")) == sorted(2 * (UPSTREAM + DOWNSTREAM))
    assert job.listener.statuses.count("RUNNING") == 2
