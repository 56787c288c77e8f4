"""Failures after some subtasks have ended: what is skipped, what runs again and with which state (G10).

The two pitfalls, union state and broadcast state, are shown with and without the remedy. Time is virtual.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest
from tests.spec.life_cycle_rig import (
    DOWNSTREAM,
    LOG,
    UPSTREAM,
    calls,
    logging_operator,
    logging_source,
    two_chains,
    written_down,
)
from tests.spec.virtual_job import (
    COMMITS,
    LEDGER,
    REFUSED,
    LedgerSink,
    Timed,
    VirtualJob,
    clear_ledger,
    environment,
    records,
)
from tests.stores import remove_tree

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.checkpoint.pending import PendingCheckpoint
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.storage import metadata as stored

#: All subtasks begin again after a failure, those too that have ended and exchange nothing with the one that failed.
pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

ALL: Any = {"jobmanager.execution.failover-strategy": "full"}
AN_HOUR: Any = {"execution.checkpointing.interval": "1 h"}
#: What each subtask of `Holder` found in its state, by attempt: (list, union list, broadcast).
FOUND: dict[tuple[int, int], tuple[list[Any], list[Any], list[Any]]] = {}
FAILS: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_so_far() -> None:
    clear_ledger()
    FOUND.clear()
    FAILS.clear()


class Holder(StreamOperator):
    """Keeps all three kinds of operator state as operators do in practice.

    The list has the records of the subtask. The union list is kept by one chosen subtask on behalf of all. The
    broadcast state is the same in every subtask; with `forgets` the chosen one holds none.
    """

    def __init__(self, chosen: int, forgets: bool = False) -> None:
        self.chosen, self.forgets = chosen, forgets

    def initialize_state(self) -> None:
        state = self.context.operator_state
        self.lists = [state.list_state(mode, mode) for mode in ("split", "union")]
        self.rules = state.broadcast_state("broadcast")
        restored = (*(found.get() for found in self.lists), list(self.rules.keys()))
        FOUND[self.context.attempt, self.context.subtask_index] = restored  # type: ignore[assignment]
        if self.context.subtask_index != self.chosen:
            self.lists[1].update([])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        own, shared = self.lists
        own.update([*own.get(), *batch.values])
        is_chosen = self.context.subtask_index == self.chosen
        if is_chosen:
            shared.update(["shared by all"])
        if not (is_chosen and self.forgets):
            self.rules.put_all({"rule 1": True, "rule 2": True})
        self.output.collect(batch)


def fail_when_told(value: Any) -> Any:
    if FAILS:
        FAILS.clear()
        raise RuntimeError("told to fail")
    return value


def run(ends_early: tuple[int, ...], chosen: int = 0, forgets: bool = False) -> VirtualJob:
    """Three subtasks, some of which end at 1 s, while the others fail at 35 s and go on from the checkpoint at 30 s."""
    env = environment(3, **ALL)
    counts = tuple(2 if subtask in ends_early else 60 for subtask in range(3))
    stream = env.from_source(Timed(1_000, counts), WatermarkStrategy.no_watermarks(), "records")
    holder = Transformation("Holder", partial(Holder, chosen, forgets), stream.upstreams, name="holder")
    env.add(holder)
    DataStream(env, (Upstream(holder),)).map(fail_when_told).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    job.at(35_000, lambda: FAILS.add("now"))
    assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    return job


def survived() -> set[str]:
    """Which state came back whole in the second attempt."""
    found = [FOUND[1, subtask] for subtask in range(3)]
    lists, unions, broadcasts = zip(*found, strict=True)
    kinds = set()
    before = {(s, n) for s in range(3) for n in range(2)}  # what even the subtasks that ended early had read
    if before <= {record for items in lists for record in items}:
        kinds.add("list")
    if all(union == ["shared by all"] for union in unions):
        kinds.add("union")
    if all(broadcast == ["rule 1", "rule 2"] for broadcast in broadcasts):
        kinds.add("broadcast")
    return kinds


SOME = [subset for size in (1, 2) for subset in itertools.combinations(range(3), size)]


@pytest.mark.parametrize("chosen", [0, 2])
@pytest.mark.parametrize("ends_early", SOME, ids=str)
def test_operator_state_survives_the_end_of_some_subtasks(ends_early: tuple[int, ...], chosen: int) -> None:
    """G10, G8: whichever subtasks have ended before a failure, list, union and broadcast state come back whole, and
    the output is that of a run without the failure."""
    job = run(ends_early, chosen)
    assert survived() == {"list", "union", "broadcast"}
    assert sorted(LEDGER["out"]) == records(*(2 if s in ends_early else 60 for s in range(3)))
    last = next(c for c in job.checkpoints if c.checkpoint_id == 3)
    assert {o.finished for o in last.operators} == {ends_early}


# --- the two pitfalls -----------------------------------------------------------------------------------------------


@contextmanager
def without(*remedies: str) -> Iterator[None]:
    """Take remedies away: as if finished subtasks left nothing, and as if the first subtask's broadcast state went to
    all, which is how it was before finished tasks could be part of checkpoints."""
    with ExitStack() as patches:
        if "finished subtasks leave their state" in remedies:
            patches.enter_context(mock.patch.object(PendingCheckpoint, "_carried", return_value=None))
        if "broadcast state of one that has it" in remedies:
            patches.enter_context(mock.patch.object(stored, "_broadcaster", return_value=0))
        yield


def test_pitfall_union_state() -> None:
    """G10: operators keep what all subtasks share in the union state of one of them: without the remedy it is lost
    when that subtask has ended, and with it the list state of the subtask."""
    with without("finished subtasks leave their state"):
        run(ends_early=(1,), chosen=1)
    assert survived() == {"broadcast"}
    run(ends_early=(1,), chosen=1)
    assert survived() == {"list", "union", "broadcast"}


def test_pitfall_broadcast_state() -> None:
    """G10: when the first subtask has ended it may hold no broadcast state: sending it to all empties them all."""
    with without("finished subtasks leave their state", "broadcast state of one that has it"):
        run(ends_early=(0,))
    assert "broadcast" not in survived()
    with without("finished subtasks leave their state"):
        run(ends_early=(0,))
    assert "broadcast" in survived()


def test_pitfall_broadcast_state_that_the_first_subtask_never_had() -> None:
    """G10: nor does it help to keep the finished subtask's state when it had ended without any."""
    with without("broadcast state of one that has it"):
        run(ends_early=(0,), forgets=True)
    assert "broadcast" not in survived()
    run(ends_early=(0,), forgets=True)
    assert survived() == {"list", "union", "broadcast"}


def test_pitfall_sources() -> None:
    """G10, G8: a source's position is list state: without the remedy a subtask that has ended would begin anew."""
    with without("finished subtasks leave their state"):
        run(ends_early=(1,))
    assert sorted(LEDGER["out"]) != records(60, 2, 60)
    assert LEDGER["out"].count((1, 0)) == 2
    clear_ledger()
    run(ends_early=(1,))
    assert sorted(LEDGER["out"]) == records(60, 2, 60)


# --- skipped, or run again ------------------------------------------------------------------------------------------


def test_fully_finished_operators_are_skipped() -> None:
    """G10: when all subtasks of a chain had finished by the checkpoint, the next attempt opens none of its operators,
    lets them recover what is left to commit, closes them, and those below the edge go on to their end."""
    with written_down():
        job = two_chains(Timed(1_000, (1,)), fails=("b2", "notified of 1"), **AN_HOUR)
        assert job.run() is JobStatus.FINISHED
    second = LOG[len(LOG) - LOG[::-1].index((0, "a3", "setup")) - 1 :]
    for where in UPSTREAM + DOWNSTREAM:
        assert [what for _, w, what in second if w == where] == ["setup", "recover_finished", "close"]
    assert [what for _, w, what in second if w == "edge"] == [
        "MAX_WATERMARK", "EndOfData(drain=True)", "barrier 2", "EndOfPartition",
    ]  # fmt: skip


def test_only_what_has_finished_is_skipped() -> None:
    """G10: a chain that had finished is skipped while the rest of the job runs again with its state."""
    env = environment(1, **ALL)
    one = logging_source(env, Timed(1_000, (2,)), "one")
    other = logging_source(env, Timed(1_000, (40,)), "other")
    both = logging_operator(one.union(other), "both")
    both.map(fail_when_told).sink_to(LedgerSink("out"))
    with written_down():
        job = VirtualJob(env)
        job.at(25_000, lambda: FAILS.add("now"))
        assert job.run() is JobStatus.FINISHED
    assert calls("recover_finished") == ["one"]
    assert [calls("open").count(where) for where in ("one", "other", "both")] == [1, 2, 2]
    assert [calls("finish").count(where) for where in ("one", "other", "both")] == [1, 1, 1]
    assert LEDGER["out"].count((0, 0)) == 2, "one of each source"
    assert len(LEDGER["out"]) == 42


def test_the_last_commit_is_made_after_the_failure_that_prevented_it() -> None:
    """G9, G10, F6: a sink whose last commit fails has finished by the checkpoint; it is skipped by the next attempt,
    and commits what the checkpoint holds, once."""
    env = environment(2, **ALL, **AN_HOUR)
    stream = env.from_source(Timed(1_000, (2, 5)), WatermarkStrategy.no_watermarks(), "records")
    stream.sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    REFUSED.add("out")
    assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    assert sorted(LEDGER["out"]) == records(2, 5)


def test_committables_of_finished_subtasks_are_not_kept() -> None:
    """G9, G10: what a subtask had prepared was committed before it was FINISHED: no later attempt commits it again."""
    run(ends_early=(0, 1))
    assert all(COMMITS.count(commit) == 1 for commit in COMMITS if commit[1] in (0, 1))
    assert len([commit for commit in COMMITS if commit[1] in (0, 1)]) == 2


def test_a_subtask_that_ran_again_ends_again() -> None:
    """G10: a subtask that had ended, of an operator that had not, comes to its end again after the failure: end_input
    and finish are called again, and nothing is emitted twice."""
    with written_down():
        env = environment(2, **ALL)
        stream = logging_source(env, Timed(1_000, (2, 40)), "source")
        logging_operator(stream, "a").map(fail_when_told).sink_to(LedgerSink("out"))
        job = VirtualJob(env)
        job.at(25_000, lambda: FAILS.add("now"))
        assert job.run() is JobStatus.FINISHED
    assert [(s, what) for s, where, what in LOG if where == "a" and what == "finish"] == [
        (0, "finish"), (0, "finish"), (1, "finish"),
    ]  # fmt: skip
    assert sorted(LEDGER["out"]) == records(2, 40)


def test_nothing_of_the_savepoint_is_needed_after_the_first_checkpoint(store_directory: Any) -> None:
    """G10, H4: a job that began from a savepoint with finished subtasks has all its state in its own checkpoints as
    soon as it has one: the savepoint may go."""

    def build(**options: Any) -> VirtualJob:
        env = environment(
            1,
            **{
                "execution.checkpointing.dir": store_directory / "checkpoints",
                "execution.checkpointing.data-inline-threshold": "0 b",
                **options,
            },
        )
        strategy = WatermarkStrategy.no_watermarks()
        one, other = (env.from_source(Timed(1_000, (count,)), strategy, "records") for count in (2, 40))
        counted = one.map(lambda record: record).key_by(lambda record: record[1]).reduce(max).uid("counted")
        counted.union(other).map(fail_when_told).sink_to(LedgerSink("out"))
        return VirtualJob(env)

    job = build()
    paths: list[Any] = []
    job.at(15_500, lambda: paths.append(job.stop_with_savepoint(False, str(store_directory / "savepoints"))))
    assert job.run() is JobStatus.FINISHED
    job = build(**{"execution.state-recovery.path": paths[0].result(0)})
    job.at(22_000, lambda: remove_tree(store_directory / "savepoints"))
    job.at(35_000, lambda: FAILS.add("now"))
    assert job.run() is JobStatus.FINISHED, job.failure()
    assert job.master.history.restarts == 1
    assert sorted(LEDGER["out"]) == sorted(records(2) + records(40))
