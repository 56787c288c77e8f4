"""The algorithm without a server: a database with a log, whose rows change at every step, and a job that restarts.

What a query sees is any state between the low watermark and the present: MySQL logs a transaction before queries see
it. The tester must also find faults that are put into the algorithm.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.connectors.mysql.cdc_target import Target

from penstock.base.errors import ContractError
from penstock.connectors.cdc import incremental
from penstock.connectors.cdc.events import TableId
from penstock.connectors.cdc.incremental import KeyRange, RowChange
from penstock.connectors.mysql.cdc import binlog, reader
from penstock.connectors.mysql.cdc.binlog import LogPosition
from penstock.connectors.mysql.cdc.database import (
    CdcSettings,
    Chunk,
    ChunkRows,
    Known,
    MySqlDatabase,
    Reached,
    RowChanges,
    TableChanges,
)
from penstock.connectors.mysql.cdc.reader import CdcReader
from penstock.connectors.mysql.cdc.source import CdcEnumerator, LogSplit, MySqlEventSource
from penstock.connectors.mysql.cdc.tables import ColumnDefinition, TableDefinition
from penstock.connectors.mysql.client import MySqlAddress
from penstock.testing.connectors.source_run import SourceRun

TABLES = [TableId("db", "a"), TableId("db", "b")]
KEYS = 40
SETTINGS = CdcSettings(MySqlAddress("nowhere"), (".*",), chunk_size=5)


def define(table_id: TableId, more: Sequence[str] = ()) -> TableDefinition:
    columns = [ColumnDefinition(name, "int") for name in ("id", "version", *more)]
    return TableDefinition(table_id, tuple(columns), ("id",))


class World:
    """Tables, and a log of transactions: (end, events); an event is (table, kind, changes) or (table, definition)."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: dict[TableId, dict[int, tuple[Any, ...]]] = {table: {} for table in TABLES}
        self.definitions = {table: define(table) for table in TABLES}
        self.log: list[tuple[int, list[Any]]] = []
        #: the state after each transaction
        self.states: list[Any] = []
        self.end = 4
        self.is_over = False
        self.columns = 0
        for _ in range(30):
            self.change()

    def step(self) -> None:
        """Something may change, at any call."""
        for _ in range(self.chance.randrange(3)):
            if not self.is_over and self.chance.random() < 0.5:
                self.change()

    def change(self) -> None:
        chance, events = self.chance, []
        if chance.random() < 0.03 and self.columns < 3:
            events.append(self._alter(chance.choice(TABLES)))
        else:
            for _ in range(chance.randrange(1, 4)):
                event = self._change_rows(chance.choice(TABLES))
                if event is not None:
                    events.append(event)
        if events:
            self.end += chance.randrange(1, 50)
            self.log.append((self.end, events))
            self.states.append(
                (self.end, {table: dict(rows) for table, rows in self.tables.items()}, dict(self.definitions))
            )

    def _alter(self, table: TableId) -> Any:
        self.columns += 1
        old = self.definitions[table]
        more = [column.name for column in old.columns[2:]]
        self.definitions[table] = define(table, [*more, f"c{self.columns}"])
        self.tables[table] = {key: (*row, None) for key, row in self.tables[table].items()}
        return table, self.definitions[table]

    def _change_rows(self, table: TableId) -> Any:
        chance, rows = self.chance, self.tables[table]
        kind, changes = chance.choice([binlog.INSERT, binlog.UPDATE, binlog.UPDATE, binlog.DELETE]), []
        width = len(self.definitions[table].columns) - 2
        for key in {chance.randrange(KEYS) for _ in range(3)}:
            if kind == binlog.INSERT and key not in rows:
                rows[key] = (key, 0, *(chance.randrange(9) for _ in range(width)))
                changes.append(RowChange(None, rows[key]))
            elif kind == binlog.DELETE and key in rows:
                changes.append(RowChange(rows.pop(key), None))
            elif kind == binlog.UPDATE and key in rows:
                old = rows.pop(key)
                new = chance.randrange(KEYS) if chance.random() < 0.2 else key
                new = key if new in rows else new
                rows[new] = (new, old[1] + 1, *old[2:])
                changes.append(RowChange(old, rows[new]))
        return (table, kind, changes) if changes else None


class SimulatedDatabase(MySqlDatabase):
    """The world, as the source sees it."""

    def __init__(self, world: World) -> None:
        super().__init__(SETTINGS)
        self.world = world

    @contextmanager
    def session(self) -> Iterator[Any]:
        self.world.step()
        yield None

    def check(self) -> None:
        pass

    def find_tables(self) -> list[TableId]:
        return list(TABLES)

    def read_position(self, connection: Any) -> LogPosition:
        self.world.step()
        return LogPosition("bin.000001", self.world.end)

    def _read_low(self, connection: Any) -> LogPosition:
        position = self.read_position(connection)
        self._low = position.offset
        return position

    def _read_definitions(self, connection: Any, table_ids: Sequence[TableId]) -> dict[TableId, TableDefinition]:
        self.world.step()
        return {table_id: self.world.definitions[table_id] for table_id in table_ids}

    def split_table(self, table_id: TableId) -> list[Chunk]:
        self.world.step()
        borders = sorted(self.world.chance.sample(range(KEYS), self.world.chance.randrange(5)))
        limits = [None, *borders, None]
        ranges = [KeyRange(*limits[index : index + 2]) for index in range(len(limits) - 1)]
        return [Chunk(table_id, "id", item, item) for item in ranges]

    def read_chunk(self, chunk: Chunk) -> ChunkRows | None:
        return self._read_corrected(None, chunk)

    def _select(self, connection: Any, definition: TableDefinition, chunk: Chunk) -> list[tuple[Any, ...]]:
        self.world.step()
        seen = self.world.chance.choice([state for state in self.world.states if state[0] >= self._low])
        rows = seen[1][chunk.table_id]
        width = len(definition.columns)
        found = [row for key, row in rows.items() if chunk.range.contains(key)]
        return [row[:width] + (None,) * (width - len(row)) for row in found]

    def read_log(
        self,
        start: LogPosition,
        stop: LogPosition | None,
        known: Mapping[TableId, Known],
        captures_new: bool = False,
        decodes: bool = True,
        on_connect: Any = None,
    ) -> Iterator[Any]:
        tables = dict(known)
        at = start.offset
        is_first = True
        while stop is None or at < stop.offset:
            self.world.step()
            transaction = next((entry for entry in self.world.log if entry[0] > at), None)
            if transaction is None:
                yield None
                continue
            boundary = LogPosition("bin.000001", at)
            for number, event in enumerate(transaction[1]):
                skipped = start.rows if is_first and number == start.events else 0
                if event[0] not in tables or boundary < tables[event[0]].since:
                    continue
                if is_first and number < start.events:
                    continue
                if len(event) == 2:
                    yield self._alter(event, tables, boundary, number)
                elif decodes:
                    table_id, kind, changes = event
                    definition = tables[table_id].definition
                    assert len(definition.columns) == len(next(row for row in changes[0] if row is not None))
                    yield RowChanges(definition, kind, changes[skipped:], 1, boundary, number, skipped)
            is_first, at = False, transaction[0]
            yield Reached(LogPosition("bin.000001", at), 1)

    def _alter(self, event: Any, tables: dict[TableId, Known], boundary: LogPosition, number: int) -> TableChanges:
        from penstock.connectors.cdc.events import AddColumnEvent

        table_id, definition = event
        tables[table_id] = Known(definition, boundary)
        added = SETTINGS.values.types.describe_column(definition.columns[-1])
        return TableChanges(table_id, definition, (AddColumnEvent(table_id, added),), 1, boundary, number)


class SimulatedSource(MySqlEventSource):
    world: World

    def create_database(self) -> MySqlDatabase:
        return SimulatedDatabase(WORLD[0])


WORLD: list[World] = []


class Foreground:
    """Does the work when it is asked for, so that a run is the same again."""

    def __init__(self, make: Callable[[], Iterator[Any]], interrupt: Callable[[], None]) -> None:
        self._items = make()
        self.is_done = False

    def take(self, wait_s: float = 0.0) -> Any:
        item = next(self._items, self)
        self.is_done = item is self
        return None if self.is_done else item

    def close(self) -> None:
        pass


def simulate(seed: int) -> list[str]:
    """Run a job; what was wrong."""
    chance = random.Random(seed)
    world = World(chance)
    WORLD[:] = [world]
    run = SourceRun(SimulatedSource(SETTINGS), chance.choice([1, 1, 2, 3]))
    steps = chance.randrange(20, 400)
    rescales = not any(len(event) == 2 for _, events in world.log for event in events)
    try:
        for _ in range(steps):
            run.advance(chance.choice([1, 2, 5, 100]))
            if chance.random() < 0.05:
                run.restart(run.snapshot(late_barrier=chance.random() < 0.3))
            elif chance.random() < 0.02 and rescales and world.columns == 0:
                world.columns = 3  # no table is altered from now on, see `penstock.connectors.mysql.cdc`
                run.restart(run.snapshot(), parallelism=chance.choice([1, 2, 3]))
            elif chance.random() < 0.1:
                run.complete(run.snapshot())
        world.is_over = True
        for _ in range(3000):
            run.advance(100)
            if chance.random() < 0.1:
                run.complete(run.snapshot())
            mains: list[Any] = [main for item in run.readers if (main := getattr(item, "_main", None)) is not None]
            if mains and mains[0].position.offset >= world.end and run.silent_rounds > 1:
                break
        else:
            return ["the log was not read to its end"]
        is_altered = any(len(event) == 2 for _, events in world.log for event in events)
        target = Target()
        for subtask, value, _ in run.arrived:
            target.apply([value], subtask if is_altered else 0)
    finally:
        run.close()
    wrong = list(target.wrong)
    for table in TABLES:
        names = [column.name for column in world.definitions[table].columns]
        rows = {tuple(row.get(name) for name in names) for row in target.rows[table].values()}
        if rows != set(world.tables[table].values()):
            wrong.append(f"{table}: {sorted(rows ^ set(world.tables[table].values()), key=str)[:5]}")
    return wrong


@pytest.fixture(autouse=True)
def _in_foreground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "Background", Foreground)


def test_the_target_becomes_the_source_whatever_happens() -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + 60):
        print("seed", seed)
        assert simulate(seed) == []


def forget_rows(original: Any, self: Any, checkpoint_id: int) -> Any:
    splits = original(self, checkpoint_id)
    return [replace(s, position=replace(s.position, rows=0)) if isinstance(s, LogSplit) else s for s in splits]


def forget_chunks(original: Any, self: Any, checkpoint_id: int) -> Any:
    splits = original(self, checkpoint_id)
    return [s for s in splits if not isinstance(s, LogSplit) or s.is_log]


def forget_chunks_to_read(original: Any, self: Any, checkpoint_id: int) -> Any:
    state = original(self, checkpoint_id)
    state.chunks.clear()
    return state


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a change at the high watermark is dropped": lambda patch: patch.setattr(
        incremental.ChunkPositions,
        "admits",
        lambda self, value, position: (c := self.find(value)) is not None and c.position < position,
    ),
    "a change before the high watermark comes again": lambda patch: patch.setattr(
        incremental.ChunkPositions, "admits", lambda self, value, position: self.find(value) is not None
    ),
    "a limit belongs to two chunks": lambda patch: patch.setattr(
        KeyRange,
        "contains",
        lambda self, value: (self.low is None or value >= self.low) and (self.high is None or value <= self.high),
    ),
    "chunks are not corrected": lambda patch: patch.setattr(
        "penstock.connectors.mysql.cdc.database.correct_rows", lambda rows, *_: list(rows)
    ),
    "rows of a transaction come again after a restart": lambda patch: patch.setattr(
        CdcReader, "snapshot_state", lambda self, n, original=CdcReader.snapshot_state: forget_rows(original, self, n)
    ),
    "chunks that were read are forgotten": lambda patch: patch.setattr(
        CdcReader, "snapshot_state", lambda self, n, original=CdcReader.snapshot_state: forget_chunks(original, self, n)
    ),
    "chunks to read are forgotten": lambda patch: patch.setattr(
        CdcEnumerator,
        "snapshot_state",
        lambda self, n, original=CdcEnumerator.snapshot_state: forget_chunks_to_read(original, self, n),
    ),
    "the log begins before the chunks are caught up with": lambda patch: patch.setattr(
        CdcReader, "_read_tail", lambda self, stop, records, drops=True: self._tails.clear()
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_algorithm_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    first = random.randrange(1 << 32)
    for seed in range(first, first + 300):
        try:
            if simulate(seed):
                return
        except (AssertionError, ContractError, KeyError, ValueError):
            return
    pytest.fail(f"300 runs from seed {first} have not noticed it")
