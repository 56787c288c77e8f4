"""Damage to the files of retained checkpoints: always found, passed over for the one before, never believed (G11).

A small job (two sources, two keyed tasks with incremental state) keeps three checkpoints on a file system in memory.
Each mutation changes one or two files. What it must spoil is known without the store: every checkpoint one of whose
files has other bytes than it was written with.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import fsspec
import pytest
from tests.runtime.job.master_rig import MasterRig

from penstock.base.errors import CheckpointError
from penstock.runtime.checkpoint.savepoints import Recovery, read_recovery
from penstock.runtime.protocol import AcknowledgeCheckpoint
from penstock.runtime.task.checkpoints import SnapshotWriter, StateHistories
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.keys import assign_key_group, key_group_range
from penstock.state.snapshot import read_keyed
from penstock.state.states import ValueStateDescriptor
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.leadership import JobMark
from penstock.storage.metadata import CheckpointMetadata, OperatorSubtaskState

MUTATIONS: Final = 2_000
RETAINED: Final = 3
PREFIX = "execution.checkpointing."
CONF = {PREFIX + "num-retained": RETAINED, "restart-strategy.fixed-delay.attempts": 10**6}

Files = dict[str, bytes]
States = dict[int, Any]  # key -> value


class Task:
    """A keyed subtask whose state changes a little from checkpoint to checkpoint."""

    def __init__(self, rig: MasterRig, subtask: int) -> None:
        self.execution = next(e for e in rig.executions if (e.vertex, e.subtask) == (1, subtask))
        self.groups = key_group_range(subtask, 128, 2)
        self.histories = StateHistories()
        self.backend = HeapKeyedStateBackend(128, "sink")
        self.model: States = {}

    def change(self, round_number: int) -> None:
        state = self.backend.value_state(ValueStateDescriptor("count"))
        for key in range(200):
            is_mine = self.groups[0] <= assign_key_group(key, 128) <= self.groups[1]
            if not is_mine or (round_number > 1 and key % 20 != round_number):
                continue
            self.backend.current_key = key
            state.update((round_number, "x" * 20))
            self.model[key] = (round_number, "x" * 20)

    def snapshot(self, store: FileCheckpointStore, checkpoint_id: int) -> dict[str, OperatorSubtaskState]:
        writer = SnapshotWriter(store, checkpoint_id, self.execution, self.groups, 128)
        operators = writer.store({"id-sink": list(self.backend.capture(checkpoint_id))}, self.histories.confirmed)
        self.histories.on_stored(checkpoint_id, operators)
        return operators


class SmallJob:
    """The job's checkpoints: their metadata, their files, and what a recovery from each must find."""

    def __init__(self, directory: str) -> None:
        self.store = FileCheckpointStore(directory, "job-1", 0)
        self.fs, self.root = fsspec.core.url_to_fs(directory)
        self.earlier: dict[str, list[bytes]] = {}
        self.expected: dict[int, list[States]] = {}
        rig = MasterRig(conf=CONF, store=self.store)
        rig.run_all()
        tasks = [Task(rig, 0), Task(rig, 1)]
        for checkpoint_id in range(1, 6):
            rig.advance(1000)
            for task in tasks:
                task.change(checkpoint_id)
                operators = task.snapshot(self.store, checkpoint_id)
                rig.master.on_message(AcknowledgeCheckpoint(task.execution, checkpoint_id, operators))
            for execution in rig.executions:
                if execution.vertex == 0:
                    rig.master.on_message(AcknowledgeCheckpoint(execution, checkpoint_id, {}))
            for task in tasks:
                task.histories.on_complete(checkpoint_id)
                task.backend.confirm(checkpoint_id)
            self.expected[checkpoint_id] = [dict(task.model) for task in tasks]
            self._remember_what_was_there()
        self.completed: list[CheckpointMetadata] = list(rig.master.checkpoints.completed)
        self.files = self.read_all()
        self.uses = {
            m.checkpoint_id: {f.path for f in m.state_files() if f.path is not None}
            | {p for p in self.files if p.endswith(f"/chk-{m.checkpoint_id}/_metadata")}
            for m in self.completed
        }

    def _remember_what_was_there(self) -> None:
        """Former contents of files of the same kind: for stale copies."""
        for path, data in self.read_all().items():
            kind = path.rpartition("/")[2].rpartition("-")[0] or path.rpartition("/")[2]
            if data not in self.earlier.setdefault(kind, []):
                self.earlier[kind].append(data)

    def read_all(self) -> Files:
        found: Files = {path: self.fs.cat_file(path) for path in self.fs.find(f"{self.root}/job-1")}
        return found

    def write(self, path: str, data: bytes | None) -> None:
        if data is not None:
            self.fs.pipe_file(path, data)
        elif self.fs.exists(path):
            self.fs.rm_file(path)


@pytest.fixture(scope="module")
def job() -> Iterator[SmallJob]:
    directory = "memory://damage"
    made = SmallJob(directory)
    yield made
    made.fs.rm(made.root, recursive=True)


def truncate(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    path = chance.choice(sorted(job.files))
    return {path: job.files[path][: chance.randrange(len(job.files[path]))]}


def flip(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    path = chance.choice(sorted(job.files))
    data = bytearray(job.files[path])
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    return {path: bytes(data)}


def swap(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    one, other = chance.sample(sorted(job.files), 2)
    return {one: job.files[other], other: job.files[one]}


def empty(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    return {chance.choice(sorted(job.files)): b""}


def remove(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    return {chance.choice(sorted(job.files)): None}


def stale(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    path = chance.choice(sorted(job.files))
    kind = path.rpartition("/")[2].rpartition("-")[0] or path.rpartition("/")[2]
    return {path: chance.choice(job.earlier[kind])}


def grow(job: SmallJob, chance: random.Random) -> dict[str, bytes | None]:
    path = chance.choice(sorted(job.files))
    return {path: job.files[path] + chance.randbytes(chance.randrange(1, 9))}


KINDS = (truncate, flip, swap, empty, remove, stale, grow)


def recover(job: SmallJob) -> MasterRig:
    """A job with these checkpoints fails and recovers."""
    rig = MasterRig(conf=CONF, store=job.store)
    rig.run_all()
    rig.master.checkpoints.completed = list(job.completed)
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    return rig


def restored_states(job: SmallJob, rig: MasterRig) -> list[States]:
    """What the tasks of the new attempt read."""
    states: list[States] = []
    for task in sorted((t for t in rig.deployed if t.execution.vertex == 1), key=lambda t: t.execution.subtask):
        first, last = key_group_range(task.execution.subtask, 128, 2)
        (handle,) = task.restored["id-sink"].keyed["count"]
        states.append(read_keyed(map(job.store.read, handle.files), first, last).get(None, {}))
    return states


def test_the_job_is_worth_damaging(job: SmallJob) -> None:
    """G7, G11: three checkpoints are kept, they share files, and undamaged ones recover to what was captured."""
    assert [m.checkpoint_id for m in job.completed] == [3, 4, 5]
    shared = [a & b for a, b in itertools.combinations(job.uses.values(), 2)]
    assert all(shared)
    assert set().union(*job.uses.values()) == set(job.files), "every file is needed"
    rig = recover(job)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {5}
    assert restored_states(job, rig) == job.expected[5]


def check(job: SmallJob, changed: dict[str, bytes | None], what: str) -> str:
    """One mutation: exactly the spoilt checkpoints are found, and recovery takes the newest other one."""
    spoilt = [i for i, paths in job.uses.items() if paths & set(changed)]
    for metadata in job.completed:
        found = None
        try:
            job.store.verify(metadata)
        except CheckpointError as error:
            found = error
        assert (found is not None) == (metadata.checkpoint_id in spoilt), f"{what}: {metadata.checkpoint_id}: {found}"
    rig = recover(job)
    left = [i for i in job.uses if i not in spoilt]
    newest = max(left, default=None)
    passed_over = [i for i in sorted(job.uses, reverse=True) if newest is None or i > newest]
    reports = [line for line in rig.logs if "cannot be restored" in line]
    assert [int(line.split()[1]) for line in reports] == passed_over, f"{what}: {reports}"
    if newest is None:
        assert rig.status == "FAILED", what
        assert "no checkpoint is left to recover from" in str(rig.master.failure)
        return "none left"
    assert {t.restored_checkpoint_id for t in rig.deployed} == {newest}, what
    assert restored_states(job, rig) == job.expected[newest], f"{what}: silently wrong"
    return "the newest" if newest == max(job.uses) else "an older one"


@pytest.mark.slow
def test_random_damage(job: SmallJob) -> None:
    """G11: 2,000 mutations: truncated, flipped, swapped, emptied, removed, stale and grown files: every one is found,
    recovery falls back with a report, and what it reads is never silently wrong."""
    chance = random.Random(11)
    outcomes: Counter[tuple[str, str]] = Counter()
    while outcomes.total() < MUTATIONS:
        kind = chance.choice(KINDS)
        changed = {path: data for path, data in kind(job, chance).items() if data != job.files[path]}
        if not changed:
            continue
        try:
            for path, data in changed.items():
                job.write(path, data)
            what = f"mutation {outcomes.total()}, {kind.__name__} {sorted(changed)}"
            outcomes[kind.__name__, check(job, changed, what)] += 1
        finally:
            for path in changed:
                job.write(path, job.files[path])
    assert job.read_all() == job.files
    assert {kind for kind, _ in outcomes} == {kind.__name__ for kind in KINDS}
    assert {outcome for _, outcome in outcomes} == {"none left", "an older one", "the newest"}


def test_every_byte_of_the_metadata(job: SmallJob) -> None:
    """G11: there is no byte in a checkpoint's metadata that may change without being found."""
    newest = job.completed[-1]
    (path,) = [p for p in job.files if p.endswith(f"/chk-{newest.checkpoint_id}/_metadata")]
    try:
        for position in range(len(job.files[path])):
            data = bytearray(job.files[path])
            data[position] ^= 1
            job.write(path, bytes(data))
            with pytest.raises(CheckpointError):
                job.store.verify(newest)
    finally:
        job.write(path, job.files[path])
    job.store.verify(newest)


def test_a_job_master_that_takes_over_finds_damage_too(job: SmallJob) -> None:
    """G11: one that knows the checkpoints by their numbers only is not misled by metadata of another checkpoint."""
    assert [job.store.load_checkpoint(m.checkpoint_id) for m in job.completed] == job.completed
    (path,) = [p for p in job.files if p.endswith("/chk-5/_metadata")]
    (stale_path,) = [p for p in job.files if p.endswith("/chk-4/_metadata")]
    try:
        job.write(path, job.files[stale_path])
        with pytest.raises(CheckpointError, match="chk-5"):
            job.store.load_checkpoint(5)
    finally:
        job.write(path, job.files[path])


def recovery_of(job: SmallJob) -> Recovery:
    """What another job master finds. The record of that goes, because what is damaged here becomes whole again."""
    recovery = read_recovery(job.store, "job-1", "job", RETAINED)
    for record in job.fs.glob(f"{job.root}/jobs/*/found-by-master-*"):
        job.fs.rm_file(record)
    return recovery


@pytest.mark.slow
def test_random_damage_before_a_takeover(job: SmallJob) -> None:
    """G8, G11: a new job master reads what is there: only whole metadata, oldest first, with a report of the rest; its
    attempts and ids are above all that came before."""
    chance = random.Random(12)
    attempts = [0]
    for number in range(300):
        kind = chance.choice(KINDS)
        changed = {path: data for path, data in kind(job, chance).items() if data != job.files[path]}
        try:
            for path, data in changed.items():
                job.write(path, data)
            recovery = recovery_of(job)
            spoilt = [m for m in job.completed if any(f"/chk-{m.checkpoint_id}/_metadata" in path for path in changed)]
            gone = [m for m in spoilt if kind is remove]
            what = f"mutation {number}, {kind.__name__} {sorted(changed)}"
            assert list(recovery.completed) == [m for m in job.completed if m not in spoilt], what
            assert len(recovery.damaged) == len(spoilt) - len(gone), what
            assert recovery.last_id == 5
            assert recovery.first_attempt > attempts[-1]
            attempts.append(recovery.first_attempt)
        finally:
            for path in changed:
                job.write(path, job.files[path])
    for path in set(job.read_all()) - set(job.files):
        job.write(path, None)


def test_a_damaged_mark_before_a_takeover(job: SmallJob) -> None:
    """G8, G11: whether the job has ended is not known; where checkpoints are left the last one does, and where none is
    there is a report, so that the job does not begin from nothing."""
    job.store.mark_job(JobMark("job-1", "job", "FINISHED", 1))
    (path,) = [path for path in job.fs.find(f"{job.root}/jobs") if "/mark-of-master-" in path]
    whole = job.fs.cat_file(path)
    job.fs.pipe_file(path, whole[:-1])
    recovery = recovery_of(job)
    assert recovery.completed == tuple(job.completed)
    assert recovery.passed_over == ()
    assert [path in line for line in recovery.damaged] == [True]
    try:
        for file in job.files:
            job.write(file, None)
        recovery = recovery_of(job)
        assert recovery.completed == ()
        assert [path in line for line in recovery.damaged] == [True]
        job.fs.pipe_file(path, whole)
        end = recovery_of(job).end
        assert end is not None
        assert end.status == "FINISHED"
    finally:
        job.fs.rm_file(path)
        for file, data in job.files.items():
            job.write(file, data)
        for left in set(job.read_all()) - set(job.files):
            job.write(left, None)
