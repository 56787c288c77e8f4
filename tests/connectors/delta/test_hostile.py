"""A job with a `DeltaSink` is killed at steps by chance, between a version and the answer as well: each row is once."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from deltalake.table import TableMerger
from tests.connectors.mortal_job import MortalJob

from penstock.datastream.connectors.delta import DeltaSink
from penstock.testing.connectors import SinkHost

RECORDS = 36
KEYS = 5


class Job(MortalJob):
    """One committer commits what all writers have prepared, and again what a checkpoint holds."""

    def __init__(self, sink: DeltaSink, deaths: set[int], parallelisms: list[int]) -> None:
        super().__init__(RECORDS, deaths, parallelisms)
        self.sink = sink

    def attempt(self, attempt: int, parallelism: int) -> None:
        _, position, _, committables = pickle.loads(pickle.dumps(self.checkpoint))
        committer = self.sink.create_committer(SinkHost())
        self.step()
        committer.recommit(committables[0] if committables else [])
        writers = [self.sink.create_writer(SinkHost(i, parallelism, attempt)) for i in range(parallelism)]
        while position < self.records:
            prepared: list[Any] = []
            for number in range(position, min(position + 6, self.records)):
                self.step()
                key = number % KEYS
                writers[key % parallelism].write_batch([(key, number)], None)
            position = min(position + 6, self.records)
            for writer in writers:
                self.step()
                prepared += writer.prepare_commit()
            self.number += 1
            self.step()
            self.checkpoint = (self.number, position, [], [prepared])
            self.step()
            committer.commit(prepared)
            self.step()
        for writer in writers:
            writer.close()


def read_rows(path: Path) -> list[tuple[Any, ...]]:
    columns = DeltaTable(path).to_pyarrow_table().to_pydict()
    return sorted(zip(*columns.values(), strict=True))


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_job_that_is_killed_anywhere(tmp_path: Path, seed: int, by_key: bool) -> None:
    """G9: the steps are those of the job, and the moment after a version was made and before anybody knows."""
    chance = random.Random(seed)
    builder = DeltaSink.for_row_data(tmp_path, {"key": int, "number": int})
    sink = (builder.with_key_columns("key") if by_key else builder.with_compaction(2)).build()
    job = Job(sink, set(chance.sample(range(1, 120), 12)), [chance.randint(1, 3) for _ in range(20)])
    owner, name = (TableMerger, "execute") if by_key else (DeltaTable, "create_write_transaction")
    made = getattr(owner, name)

    def killed_after(*args: Any, **more: Any) -> Any:
        found = made(*args, **more)
        job.step()
        return found

    with mock.patch.object(owner, name, killed_after):
        job.run()
    assert job.calls > max(job.deaths), "it has died each time"
    last = {number % KEYS: number for number in range(RECORDS)}
    every = [(number % KEYS, number) for number in range(RECORDS)]
    assert read_rows(tmp_path) == sorted(last.items() if by_key else every)
