"""Programs that begin from a RocksDB checkpoint of another version of themselves, in RocksDB's own files (D3, H4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.datastream.places import Places
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.common import Row, Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor

RECORDS, KEYS = 400, 7
SENT = [(f"key-{n % KEYS}", n) for n in range(RECORDS)]
OLD = Types.ROW_NAMED(["count", "last"], [Types.INT(), Types.INT()])
NEW = Types.ROW_NAMED(["last", "count", "note"], [Types.LONG(), Types.BIG_INT(), Types.STRING()])


class Remember(KeyedProcessFunction):
    """Keeps all that came by, in states of three kinds, under the types of its version."""

    def __init__(self, rows: Any, numbers: Any) -> None:
        self.rows = rows
        self.numbers = numbers

    def open(self, runtime_context: Any) -> None:
        self.by_digit = runtime_context.get_map_state(MapStateDescriptor("by digit", Types.INT(), self.rows))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", self.numbers))
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda one, other: one + other, self.numbers)
        )

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        key, number = value
        before = self.by_digit.get(number % 10)
        fields = {"count": 1 if before is None else before["count"] + 1, "last": number, "note": None}
        self.by_digit.put(number % 10, Row(**{name: fields[name] for name in self.rows.get_field_names()}))
        self.all.add(number)
        self.total.add(number)
        yield key, number, fields["count"], len(list(self.all)), self.total.get()


def expected() -> list[Any]:
    """What one job gives out that nobody ended."""
    found = []
    seen: dict[str, list[int]] = {}
    for key, number in SENT:
        numbers = seen.setdefault(key, [])
        numbers.append(number)
        digits = [n for n in numbers if n % 10 == number % 10]
        found.append((key, number, len(digits), len(numbers), sum(numbers)))
    return sorted(found)


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def program(places: Places, parallelism: int, rows: Any, numbers: Any, path: str | None, backend: str) -> VirtualJob:
    env = environment(
        parallelism,
        **{
            "state.backend.type": backend,
            "state.backend.rocksdb.localdir": places.local / "rocksdb",
            "execution.state-recovery.path": path,
            "execution.checkpointing.dir": places.store / "c",
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.source.batch-records": 2,
        },
    )
    kept = env.from_collection(SENT).uid("numbers").key_by(lambda record: record[0]).process(Remember(rows, numbers))
    kept.uid("remember").sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


def checkpoint(places: Places) -> str:
    """That of the old version, cancelled in the middle of its records."""
    job = program(places, 2, OLD, Types.INT(), None, "rocksdb")
    job.when(lambda: job.turns >= 26, job.trigger_checkpoint)
    job.when(lambda: job.checkpoints, job.cancel)
    assert job.run() is JobStatus.CANCELED, job.failure()
    (kept,) = job.checkpoints
    assert any(s.native for o in kept.operators for s in o.subtasks.values())
    assert 0 < len(LEDGER.get("out", ())) < RECORDS
    return str(places.store / "c" / kept.job_id / f"chk-{kept.checkpoint_id}")


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_compatible_version_goes_on(places: Places, parallelism: int) -> None:
    """D4, H4: rows of maps, lists and reduced values become what they are now declared as, at any parallelism."""
    job = program(places, parallelism, NEW, Types.BIG_INT(), checkpoint(places), "rocksdb")
    assert job.run() is JobStatus.FINISHED, job.failure()
    assert sorted(LEDGER["out"]) == expected()


def test_an_incompatible_version_fails_at_once(places: Places) -> None:
    """H4: the error names the operator with its uid, the state and both types."""
    job = program(places, 2, NEW, Types.STRING(), checkpoint(places), "rocksdb")
    assert job.run() is JobStatus.FAILED
    assert "(uid 'remember'): state 'all' was written as ListState<INT> and is now declared as" in job.failure()


def test_the_hash_map_refuses(places: Places) -> None:
    """D3, H4: before anything runs, with the ways out."""
    job = program(places, 2, OLD, Types.INT(), checkpoint(places), "hashmap")
    assert job.run() is JobStatus.FAILED
    assert "(uid 'remember'): the checkpoint holds its keyed state in files of the backend 'rocksdb'" in job.failure()
    assert "RUNNING" not in job.listener.statuses
