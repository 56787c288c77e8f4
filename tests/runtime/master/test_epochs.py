"""The master of epochs, step by step: what it asks for, and what it does when a step fails (I1, G8, G9)."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace
from tests.runtime.job.master_rig import two_vertices

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.epochs.coordinator import Dealt, EpochAnswer, EpochWork, Task
from penstock.runtime.master import steps
from penstock.runtime.master.epochs import EpochMaster
from penstock.runtime.master.master import drive
from penstock.runtime.protocol import StopMode
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.storage.leadership import BEGUN, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata
from penstock.testing import VirtualClock

#: Steps that change nothing that outlives the job.
SILENT = (
    steps.Report,
    steps.Log,
    steps.Wait,
    steps.NextRequest,
    steps.PrepareSources,
    steps.OpenSources,
    steps.DealSplits,
    steps.SnapshotSources,
    steps.Join,
    steps.CheckLeads,
    steps.EndSinks,
)


class Play:
    """Plays the driver and all tasks of a job whose source has `epochs` epochs of records, five in each."""

    def __init__(self, epochs: int = 2, **options: str) -> None:
        configuration = Configuration()
        for key, value in {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "9",
            "restart-strategy.fixed-delay.delay": "1 ms",
            **{name.replace("_", "."): value for name, value in options.items()},
        }.items():
            configuration.set_string(key, value)
        self.epochs = epochs
        self.read = 0
        self.clock = VirtualClock()
        self.master = EpochMaster(two_vertices(), "job-1", configuration, self.clock, None)
        #: what became of the steps that count
        self.done: list[str] = []
        #: the names of all steps
        self.names: list[str] = []
        self.works: list[dict[Task, EpochWork]] = []
        self.answers: list[tuple[Any, str | None]] = []
        self.logs: list[str] = []
        self.stored: list[CheckpointMetadata] = []
        #: what is at the path from which the job begins
        self.to_load: CheckpointMetadata | None = None
        self.requests: deque[steps.Request] = deque()
        #: for the n-th step of a name: what it raises
        self.failing: dict[tuple[str, int], Exception] = {}
        #: by epoch: what tasks answer instead of what they should
        self.other_answers: dict[int, dict[Task, EpochAnswer | None]] = {}
        self._counts: dict[str, int] = {}
        self._reads = False

    def fail(self, step: str, number: int = 1, error: Exception | None = None) -> Play:
        self.failing[step, number] = error or OSError("disk full")
        return self

    def run(self) -> list[str]:
        drive(self.master.run(), self._perform)
        return self.done

    def _perform(self, step: steps.Step) -> Any:
        self.master.validate()
        name = type(step).__name__
        self.names.append(name)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        error = self.failing.get((name, count))
        if not isinstance(step, SILENT):
            self.done.append(f"{self._described(step, name)}{' fails' if error else ''}")
        if error is not None:
            raise error
        return self._result(step)

    def _described(self, step: steps.Step, name: str) -> str:
        match step:
            case steps.RunEpoch(works):
                return f"run {next(iter(works.values())).epoch}"
            case steps.Complete(metadata, path):
                return f"complete {metadata.checkpoint_id}" if path is None else f"complete {path}"
            case steps.Revoke(checkpoint_id):
                return f"revoke {checkpoint_id}"
            case steps.DeleteGarbage(kept, below):
                return f"keep {[m.checkpoint_id for m in kept]} below {'all' if below > 1 << 60 else below}"
            case steps.MarkJob(mark):
                return f"mark {mark.status}"
            case steps.ReadThrough(metadata):
                return f"read {metadata.checkpoint_id}"
        return name

    def _result(self, step: steps.Step) -> Any:
        match step:
            case steps.DealSplits():
                return {"id-source": Dealt(((), ()), (True, True))}
            case steps.RunEpoch(works):
                return self._run(dict(works))
            case steps.SnapshotSources():
                return {}
            case steps.Complete(metadata):
                self.read += self._reads
                self.stored.append(metadata)
            case steps.Load():
                return self.to_load
            case steps.TakeOver():
                return LeftByJobs((), (), 2, former=((1, "job-0"),))
            case steps.NextRequest():
                return self.requests.popleft() if self.requests else None
            case steps.Answer(_, result, error):
                self.answers.append((result, error))
            case steps.Log(line):
                self.logs.append(line)
            case steps.Wait(for_ms):
                self.clock.advance_to(self.clock.now_ms() + for_ms)
        return None

    def _run(self, works: dict[Task, EpochWork]) -> steps.Left:
        self.works.append(works)
        one = works[0, 0]
        reads = one.records_max != 0 and not one.ends
        self._reads = reads
        answers: dict[Task, EpochAnswer | None] = {}
        for vertex, subtask in works:
            has_ended = vertex == 0 and self.read + reads >= self.epochs
            token = f"{vertex}.{subtask}.{one.epoch}".encode()
            used = frozenset(f"0.{s}.{one.epoch}".encode() for s in (0, 1)) if vertex else frozenset[bytes]()
            watermarks = {0: 10 * one.epoch, -1: 10 * one.epoch if vertex else MIN_TIMESTAMP}
            answers[vertex, subtask] = EpochAnswer(
                {}, watermarks, has_ended, 5 if reads and not vertex else 0, token, used
            )
        answers.update(self.other_answers.get(one.epoch, {}))
        return steps.Left({task: answer for task, answer in answers.items() if answer is not None}, [])


def test_an_epoch_exists_before_its_output_is_delivered() -> None:
    """I1, G9: run, complete the checkpoint, deliver, and only then delete what is older."""
    assert Play().run() == [
        "mark BEGUN",
        *("run 1", "complete 1", "Deliver", "keep [1] below 2"),
        *("run 2", "complete 2", "Deliver", "keep [2] below 3"),
        *("run 3", "complete 3", "Deliver", "keep [3] below 4"),
        "mark FINISHED",
        "keep [] below all",
    ]


def test_the_last_epoch_reads_nothing_and_drains() -> None:
    """F3, I1."""
    play = Play(epochs=1)
    play.run()
    assert [(w[0, 0].ends, w[0, 0].records_max) for w in play.works] == [(False, None), (True, 0)]


#: The end of a job that has read all: an epoch that drains, and what says so.
def drained(number: int) -> list[str]:
    return [
        *(f"run {number}", f"complete {number}", "Deliver", f"keep [{number}] below {number + 1}"),
        *("mark FINISHED", "keep [] below all"),
    ]


@pytest.mark.parametrize("step", ["DealSplits", "RunEpoch", "SnapshotSources"])
def test_an_epoch_that_fails_runs_again(step: str) -> None:
    """G8, I1: nothing of it is completed or delivered. The next one begins from the last checkpoint, which is read
    first. It has a number of its own, because tasks of the former may still write under theirs."""
    ran = {"DealSplits": [], "RunEpoch": ["run 2 fails"], "SnapshotSources": ["run 2"]}[step]
    number = 2 + len(ran)
    play = Play().fail(step, 2)
    assert play.run() == [
        *("mark BEGUN", "run 1", "complete 1", "Deliver", "keep [1] below 2"),
        *(*ran, "read 1"),
        *(f"run {number}", f"complete {number}", "Deliver", f"keep [{number}] below {number + 1}"),
        *drained(number + 1),
    ]
    assert play.works[-2][0, 0].restored_id == 1


def test_a_checkpoint_that_fails_as_it_is_written_is_taken_back() -> None:
    """G8, G11: it may be visible. Before it is taken back no epoch begins, for its sinks would remove what only that
    checkpoint holds."""
    play = Play(epochs=1).fail("Complete").fail("Revoke")
    assert play.run() == [
        *("mark BEGUN", "run 1", "complete 1 fails", "revoke 1 fails", "revoke 1"),
        *("run 2", "complete 2", "Deliver", "keep [2] below 3"),
        *drained(3),
    ]


def test_what_others_of_its_name_have_left_goes_when_the_job_needs_it_no_more() -> None:
    """E7, G8: when it has a checkpoint of its own; and again at the end, because a deposed driver may have gone on."""
    options = {"penstock.recovery.from-latest": "true", "execution.checkpointing.dir": "/c"}
    play = Play(epochs=2, **options).fail("RunEpoch").fail("DeleteJobs")
    assert play.run() == [
        *("TakeOver", "run 1 fails", "run 2", "complete 2", "Deliver", "keep [2] below 3"),
        *("EndForerunners", "DeleteJobs fails"),
        *("run 3", "complete 3", "Deliver", "keep [3] below 4", "EndForerunners", "DeleteJobs"),
        *("run 4", "complete 4", "Deliver", "keep [4] below 5"),
        *("mark FINISHED", "keep [] below all", "EndForerunners", "DeleteJobs"),
    ]
    # The sinks of the first epoch remove what they had prepared since; the rest goes with their checkpoints.
    assert [works[0, 0].forerunners for works in play.works] == [("job-0",), (), ()]


@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_job_that_fails_keeps_what_a_doubtful_checkpoint_has_prepared(is_revoked: bool) -> None:
    """G8, G9: its metadata may be visible, and a job that comes later begins from it and commits what it holds. So the
    sinks' leftovers go only when it was taken back."""
    play = Play(epochs=2, **{"restart-strategy.fixed-delay.attempts": "0"}).fail("Complete", 2)
    if not is_revoked:
        play.fail("Revoke")
    play.run()
    assert play.master.status.name == "FAILED"
    assert "Revoke" in play.names
    assert ("EndSinks" in play.names) is is_revoked


def test_what_cannot_be_delivered_is_delivered_again_and_nothing_else_runs() -> None:
    """G9, I1: its checkpoint is complete, so its records are not read again; the older checkpoint stays until then."""
    play = Play().fail("Deliver", 2).fail("Deliver", 3)
    assert play.run() == [
        *("mark BEGUN", "run 1", "complete 1", "Deliver", "keep [1] below 2"),
        *("run 2", "complete 2", "Deliver fails", "Deliver fails", "Deliver", "keep [2] below 3"),
        *drained(3),
    ]


def answer(token: bytes, *used: bytes) -> EpochAnswer:
    return EpochAnswer({}, {0: 20, -1: 20}, False, 0, token, frozenset(used))


@pytest.mark.parametrize(
    ("task", "instead", "words"),
    [
        ((0, 1), answer(b"second run"), "ran again after other tasks had used its output"),
        ((1, 0), answer(b"1.0.2", b"0.0.2", b"first run"), "ran again after other tasks had used its output"),
        ((1, 1), None, "1 tasks of the epoch have not answered"),
    ],
)
def test_answers_of_different_runs_make_no_checkpoint(task: Task, instead: EpochAnswer | None, words: str) -> None:
    """G8, I1: Spark may run a task twice. What another task has used of the one run is not what the other one read."""
    play = Play()
    play.other_answers[2] = {task: instead}
    assert play.run() == [
        *("mark BEGUN", "run 1", "complete 1", "Deliver", "keep [1] below 2"),
        *("run 2", "read 1", "run 3", "complete 3", "Deliver", "keep [3] below 4"),
        *drained(4),
    ]
    assert any(words in failure.text for failure in play.master.history.failures)


def test_event_time_goes_on_from_epoch_to_epoch() -> None:
    """C2, I1: each task begins where its last run that counts ended, whatever a failed one had reached."""
    play = Play(epochs=3).fail("SnapshotSources", 2)
    play.run()
    begun = [(w[0, 0].epoch, w[0, 0].watermarks.get(0), w[1, 1].watermarks.get(-1)) for w in play.works]
    assert begun == [(1, None, None), (2, 10, 10), (3, 10, 10), (4, 30, 30), (5, 40, 40)]


@pytest.mark.parametrize("retained", [1, 2])
def test_checkpoints_are_kept(retained: int) -> None:
    """G6: as many as the option says, and one at least."""
    play = Play(epochs=3, **{"execution_checkpointing_num-retained": str(retained)})
    kept = [line for line in play.run() if line.startswith("keep")]
    expected = {1: ["[1]", "[2]", "[3]", "[4]"], 2: ["[1]", "[1, 2]", "[2, 3]", "[3, 4]"]}[retained]
    assert kept == [f"keep {ids} below {n + 2}" for n, ids in enumerate(expected)] + ["keep [] below all"]


def test_files_that_cannot_be_deleted_end_nothing() -> None:
    """G6: the next time finds them."""
    play = Play(epochs=1).fail("DeleteGarbage")
    assert "keep [1] below 2 fails" in play.run()
    assert play.master.status.name == "FINISHED"
    assert any("old checkpoints could not be deleted: OSError: disk full" in line for line in play.logs)


def test_no_checkpoint_goes_before_the_end_is_said() -> None:
    """G8: a job without checkpoints and without a word would begin again from nothing."""
    play = Play(epochs=1).fail("MarkJob", 2)
    done = play.run()
    assert done[-2:] == ["keep [2] below 3", "mark FINISHED fails"]
    assert play.master.status.name == "FINISHED"


def test_a_job_that_begins_anew_says_so_first() -> None:
    """G8: else what a former job of its name has left would count as its own."""
    play = Play().fail("MarkJob")
    assert play.run() == [f"mark {BEGUN} fails"]
    assert play.master.status.name == "FAILED"


@pytest.mark.parametrize("stop", [None, StopMode.SUSPEND, StopMode.DRAIN])
def test_a_savepoint_is_complete_before_anything_follows(stop: StopMode | None) -> None:
    """H1, H2: it reads nothing. One that ends the job is delivered, said to be the end, and answered, in that order;
    one beside the job delivers nothing, because the job goes on from before it."""
    play = Play(epochs=2)
    play.requests.append(steps.Request(1, TakeSavepoint("/sp", stop)))
    done = play.run()
    ((path, error),) = play.answers
    assert error is None
    begun = ["mark BEGUN", "run 1", "complete 1", "Deliver", "keep [1] below 2", "run 2", f"complete {path}"]
    assert done[: len(begun)] == begun
    rest = done[len(begun) :]
    if stop is None:
        assert rest == ["Answer", *("run 3", "complete 3", "Deliver", "keep [3] below 4"), *drained(4)]
        assert play.works[2][0, 0].restored_id == 1
    else:
        assert rest == ["Deliver", "mark FINISHED", "Answer"]
    savepoint = play.works[1][0, 0]
    assert (savepoint.records_max, savepoint.savepoint_path, savepoint.ends) == (0, path, stop is StopMode.DRAIN)


def test_a_savepoint_that_fails_leaves_nothing_and_the_job_goes_on() -> None:
    """H1: who asked for it hears why."""
    play = Play(epochs=2).fail("Complete", 2)
    play.requests.append(steps.Request(1, TakeSavepoint("/sp", StopMode.SUSPEND)))
    done = play.run()
    ((path, error),) = play.answers
    assert (path, error) == (None, "no savepoint: OSError: disk full")
    at = done.index("keep [1] below 3")
    assert done[at + 1] == "DeleteSavepoint"
    assert done[at + 2 :] == ["revoke 2", "run 3", "complete 3", "Deliver", "keep [3] below 4", *drained(4)]


def test_past_a_damaged_checkpoint() -> None:
    """G11: the one before serves, if a job that commits may fall back at all; the damaged one is dropped."""
    play = Play(epochs=3, **{"execution_checkpointing_num-retained": "2"})
    play.fail("RunEpoch", 3).fail("ReadThrough", 1, CheckpointError("chk-2/file is missing"))
    done = play.run()
    at = done.index("run 3 fails")
    assert done[at + 1 : at + 5] == ["read 2 fails", "read 1", "run 4", "complete 4"]
    assert any("checkpoint 2 cannot be restored: chk-2/file is missing" in line for line in play.logs)
    assert play.works[2][0, 0].restored_id == 1


def test_without_a_whole_checkpoint_the_job_fails_for_good() -> None:
    """G11: starting over would deliver again what was delivered."""
    play = Play(epochs=3).fail("RunEpoch", 2).fail("ReadThrough", 1, CheckpointError("chk-1/file is missing"))
    assert play.run()[-1] == "read 1 fails"
    assert play.master.status.name == "FAILED"
    assert "no checkpoint is left to recover from: chk-1/file is missing" in str(play.master.failure)


@pytest.mark.parametrize("mode", ["NO_CLAIM", "CLAIM"])
def test_a_claimed_savepoint_goes_when_the_job_needs_it_no_more(mode: str) -> None:
    """H4, I1: with the first checkpoint of the job's own; any other never."""
    options = {"execution.state-recovery.path": "/sp", "execution.state-recovery.claim-mode": mode}
    play = Play(epochs=2, **options).fail("RunEpoch").fail("DeleteSavepoint")
    earlier = Play()
    earlier.run()
    play.to_load = replace(earlier.stored[0], job_id="job-0", external_path="/sp")
    deletions = [] if mode == "NO_CLAIM" else ["DeleteSavepoint fails", "DeleteSavepoint"]
    assert play.run() == [
        *(
            "Load",
            "read 1",
            "mark BEGUN",
            "run 2 fails",
            "read 1",
            "run 3",
            "complete 3",
            "Deliver",
            "keep [3] below 4",
        ),
        *deletions[:1],
        *("run 4", "complete 4", "Deliver", "keep [4] below 5"),
        *deletions[1:],
        *drained(5),
    ]
