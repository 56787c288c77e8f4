"""`DeltaEpochWriter` against a table that leaves out writes as Delta Lake does. Kills: `tests.spec.kill_batches`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ConfigurationError, OperationError
from penstock.datastream.connectors.spark import DeltaEpochWriter
from penstock.drivers.spark import foreach_batch
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment


class DeltaTable:
    """A table that leaves out writes as Delta Lake does; it is its own session, frame, writer and history."""

    def __init__(self) -> None:
        self.epochs: list[str] = []
        self.histories = 0
        self._numbers: dict[str, int] = {}
        self._options: dict[str, str] = {}
        self.write = self.sparkSession = self

    def format(self, _: str) -> DeltaTable:
        return self

    mode = format

    def options(self, **options: str) -> DeltaTable:
        self._options = options
        return self

    def save(self, _: str) -> None:
        name, number = self._options["txnAppId"], int(self._options["txnVersion"])
        if number > self._numbers.get(name, -1):
            self._numbers[name] = number
            self.epochs.append(self._options["userMetadata"])

    def sql(self, _: str) -> DeltaTable:
        self.histories += 1
        return self

    def where(self, condition: str) -> DeltaTable:
        self._wanted = condition.partition("'")[2].rstrip("'")
        return self

    def take(self, _: int) -> list[str]:
        return [note for note in self.epochs if note == self._wanted]


def write_epochs(writer: DeltaEpochWriter, table: Any, *epochs: tuple[int, str]) -> None:
    for number, identity in epochs:
        token = foreach_batch._epoch.set(foreach_batch.EpochId(number, identity))
        try:
            writer(table, number)
        finally:
            foreach_batch._epoch.reset(token)


def test_a_delta_output_never_loses_an_epoch_that_delta_leaves_out() -> None:
    table = DeltaTable()
    write_epochs(DeltaEpochWriter("t", "/lake"), table, (1, "a"), (2, "b"), (3, "c"))
    assert (len(table.epochs), table.histories) == (3, 1)
    # The program died before the end of the third epoch counted: it comes again, and then others.
    restarted = DeltaEpochWriter("t", "/lake")
    write_epochs(restarted, table, (3, "c"), (4, "d"))
    assert (len(table.epochs), table.histories) == (4, 2)
    refusal = r"left out epoch 1 of the output 't'.*Give the output a new name \(sink.transaction-name"
    with pytest.raises(OperationError, match=refusal):
        write_epochs(DeltaEpochWriter("t", "/lake"), table, (1, "x"))  # a new job
    with pytest.raises(OperationError, match="left out epoch 3"):
        write_epochs(restarted, table, (3, "y"))  # in the same process, from an older savepoint
    write_epochs(DeltaEpochWriter("u", "/lake"), table, (1, "x"))
    assert len(table.epochs) == 5


def test_wrong_delta_outputs() -> None:
    with pytest.raises(ConfigurationError, match="sets the option 'txnversion' itself"):
        DeltaEpochWriter("t", "/lake", {"txnVersion": "1"})
    with pytest.raises(ConfigurationError, match="the mode append or overwrite, not 'ignore'"):
        DeltaEpochWriter("t", "/lake", mode="ignore")
    with pytest.raises(ConfigurationError, match=r"pass it to for_each_batch\(\)"):
        DeltaEpochWriter("t", "/lake")(None, 1)  # type: ignore[arg-type]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.execute_sql(
        "CREATE TABLE t (a BIGINT) WITH ('connector' = 'spark', 'format' = 'delta', 'option.mergeSchema' = 'true', "
        "'sink.transaction-name' = 't')"
    )
    with pytest.raises(ValidationError, match="a Delta output needs a name and a path"):
        tables.execute_sql("INSERT INTO t VALUES (1)")
