"""The algorithm of the parallel snapshot, with a simulated database: every change once, whatever happens when.

Transactions change rows, each is in the log a moment before others see it, chunks are read in snapshots by readers of
their own, the log is read in pieces, and everything is restarted from its state at any time. The log starts before the
rows are read, tables may be added later, and a TRUNCATE may come between. The rows that were read and the changes that
count must add up to the table. Planted mistakes must be found, or the test would prove nothing.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.types import RowKind
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import Column, TableId, TableSchema
from penstock.connectors.postgres.cdc.changes import ChangeReader, FollowedTable
from penstock.connectors.postgres.cdc.outputs import EventOutput
from penstock.connectors.postgres.cdc.position import (
    CdcTable,
    KeyRange,
    LogPosition,
    SeenKeys,
    Snapshot,
    TablePosition,
    TableState,
)
from penstock.connectors.postgres.cdc.schemas import Attribute, LoggedSchema

SEED = int(os.environ.get("CDC_ALGORITHM_SEED", "0")) or random.randrange(1, 1 << 31)
OID, NAME = 7, TableId("public", "t")
SCHEMA = TableSchema((Column("id", pa.int32(), "INT", False), Column("v", pa.int32(), "INT")), ("id",))
LOGGED = LoggedSchema(SCHEMA, (Attribute(1, 23, -1), Attribute(2, 23, -1)), lsn=1)
KEYS = 30


def _text(value: int) -> bytes:
    digits = str(value).encode()
    return b"t" + struct.pack(">I", len(digits)) + digits


def _row(key: int, value: int) -> bytes:
    return struct.pack(">H", 2) + _text(key) + _text(value)


RELATION = (
    b"R" + struct.pack(">I", OID) + b"public\0t\0f" + struct.pack(">H", 2)
    + b"".join(b"\1" + name + b"\0" + struct.pack(">Ii", 23, -1) for name in (b"id", b"v"))
)  # fmt: skip


@dataclass
class Transaction:
    """A transaction: what it has changed, and whether it has ended, and whether others see it."""

    xid: int
    messages: list[bytes] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)
    changes: list[tuple[int, int | None]] = field(default_factory=list)
    commit_lsn: int = 0
    is_seen: bool = False


class Server:
    """A database of one table with a log."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.next_xid, self.lsn, self.version = 100, 1_000, 0
        #: the rows as they are once all that are in the log are seen
        self.rows: dict[int, int] = dict.fromkeys(range(0, KEYS, 2), 0)
        self.base = dict(self.rows)
        self.running: list[Transaction] = []
        self.log: list[Transaction] = []

    def begin(self) -> None:
        self.running.append(Transaction(self.next_xid))
        self.next_xid += 1

    def change(self) -> None:
        """A row is locked by the transaction that has changed it, until others see that."""
        locked = {key for other in [*self.running, *self.log] if not other.is_seen for key in other.keys}
        if not self.running:
            return
        transaction = self._chance.choice(self.running)
        key = self._chance.randrange(KEYS)
        if key in locked - transaction.keys:
            return
        transaction.keys.add(key)
        self.version += 1
        was, draw = self.rows.get(key), self._chance.random()
        oid = struct.pack(">I", OID)
        if was is None:
            transaction.messages.append(b"I" + oid + b"N" + _row(key, self.version))
            self._set(transaction, key, self.version)
        elif draw < 0.3:
            transaction.messages.append(b"D" + oid + b"O" + _row(key, was))
            self._set(transaction, key, None)
        else:
            transaction.messages.append(b"U" + oid + b"O" + _row(key, was) + b"N" + _row(key, self.version))
            self._set(transaction, key, self.version)

    def _set(self, transaction: Transaction, key: int, value: int | None) -> None:
        transaction.changes.append((key, value))
        if value is None:
            del self.rows[key]
        else:
            self.rows[key] = value

    def truncate(self) -> None:
        """Nobody else may have changed rows that others do not see yet: it waits for them, and they for it."""
        if self.running or any(not transaction.is_seen for transaction in self.log):
            return
        transaction = Transaction(self.next_xid)
        self.next_xid += 1
        transaction.messages.append(b"T" + struct.pack(">IBI", 1, 0, OID))
        for key in list(self.rows):
            self._set(transaction, key, None)
        self.running.append(transaction)
        self.commit(transaction)
        transaction.is_seen = True

    def commit(self, transaction: Transaction) -> None:
        """It is in the log; others see it later."""
        self.running.remove(transaction)
        transaction.commit_lsn = self.lsn = self.lsn + 10
        self.log.append(transaction)

    def show(self) -> None:
        hidden = [transaction for transaction in self.log if not transaction.is_seen]
        if hidden:
            self._chance.choice(hidden).is_seen = True

    def take_snapshot(self) -> Snapshot:
        hidden = [transaction.xid for transaction in self.log if not transaction.is_seen]
        running = frozenset([*hidden, *(transaction.xid for transaction in self.running)])
        return Snapshot(self.next_xid, running, self.lsn)

    def read(self, after: int, last: int | None, limit: int) -> tuple[Snapshot, list[tuple[int, int]]]:
        """Rows in the order of the key, in a snapshot."""
        snapshot = self.take_snapshot()
        rows = dict(self.base)
        for transaction in self.log:
            if transaction.is_seen:
                for key, value in transaction.changes:
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = value
        keys = sorted(key for key in rows if key > after and (last is None or key <= last))[:limit]
        return snapshot, [(key, rows[key]) for key in keys]

    def send(self, lsn: int) -> list[bytes]:
        """The messages of the log from a position on."""
        messages = [RELATION]
        for transaction in self.log:
            if transaction.commit_lsn + 5 <= lsn:
                continue
            messages.append(b"B" + struct.pack(">QqI", transaction.commit_lsn, 0, transaction.xid))
            messages += transaction.messages
            messages.append(b"C\0" + struct.pack(">QQq", transaction.commit_lsn, transaction.commit_lsn + 5, 0))
        return messages


@dataclass(frozen=True)
class Chunk:
    """What a reader of a chunk keeps: the first key, and how far it has been read."""

    after: int
    position: TablePosition


@dataclass(frozen=True)
class State:
    """A checkpoint: the chunks that are being read, those that were, the log, and what has come out."""

    chunks: tuple[Chunk, ...]
    finished: tuple[tuple[int, TablePosition], ...]
    log: tuple[TablePosition | None, LogPosition, frozenset[int]] | None
    output: tuple[events.Event, ...]


class Job:
    """The readers of chunks, and the reader of the log, as the connector has them."""

    def __init__(self, server: Server, chance: random.Random, is_parallel: bool, start: LogPosition) -> None:
        self._server, self._chance, self._start = server, chance, start
        self.output: list[events.Event] = []
        self.finished: dict[int, TablePosition] = {}
        self.followed: FollowedTable | None = None
        self.reader: ChangeReader | None = None
        self.sent: list[bytes] = []
        self.chunks: list[Chunk] = []
        if is_parallel:
            bounds = sorted(chance.sample(range(KEYS), chance.randrange(5)))
            lasts: list[tuple[int, ...] | None] = [*((bound,) for bound in bounds), None]
            self.chunks = [
                Chunk(after, TablePosition((KeyRange(last, None),)))
                for after, last in zip([-1, *bounds], lasts, strict=True)
            ]
        else:
            self._follow(TablePosition().closed(), start, frozenset())

    def save(self) -> State:
        log = None
        if self.reader is not None and self.followed is not None:
            log = self.followed.state.position, self.reader.position, frozenset(self.reader.passed)
        return State(tuple(self.chunks), tuple(self.finished.items()), log, tuple(self.output))

    def restore(self, state: State) -> None:
        self.chunks, self.finished, self.output = list(state.chunks), dict(state.finished), list(state.output)
        self.followed = self.reader = None
        if state.log is not None:
            self._follow(*state.log)

    def _follow(self, position: TablePosition | None, log: LogPosition, passed: frozenset[int]) -> None:
        table = CdcTable(None, "t", OID, ("id", "v"), (pa.int32(), pa.int32()), ())  # type: ignore[arg-type]
        self.followed = FollowedTable(TableState(NAME, OID, position, LOGGED), table)
        self.followed.move(position)
        output = EventOutput("fail", lambda oid: LOGGED, lambda oid: "int4")
        self.reader = ChangeReader([self.followed], log, output, passed)
        self.sent = self._server.send(log.lsn)

    def read_chunk(self) -> None:
        """A piece of a chunk, in a snapshot of its own."""
        if not self.chunks:
            return
        index = self._chance.randrange(len(self.chunks))
        chunk = self.chunks[index]
        bounds = chunk.position.find_unread()
        assert bounds is not None
        after = chunk.after if len(chunk.position.ranges) == 1 else (bounds[0] or (chunk.after,))[0]
        position = self._read(chunk.position, int(after), bounds[1], frozenset())
        self.chunks[index] = replace(chunk, position=position)
        if position.find_unread() is None:
            self.finished[chunk.after] = position
            del self.chunks[index]

    def _read(self, position: TablePosition, after: int, last: Any, passed: frozenset[int]) -> TablePosition:
        limit = self._chance.randrange(1, 6)
        snapshot, rows = self._server.read(after, None if last is None else last[0], limit)
        if not all(map(snapshot.sees, passed)):
            return position
        self.output += [events.DataChangeEvent(NAME, RowKind.INSERT, None, row) for row in rows]
        return position.with_rows((rows[-1][0],) if len(rows) == limit else None, snapshot)

    def step_log(self) -> None:
        """The reader of the log begins once all chunks are read; it reads rows that are left, and the log."""
        if self.reader is None:
            if self.chunks:
                return
            position = TablePosition()
            for after in sorted(self.finished):
                position = position.followed_by(self.finished[after])
            self._follow(position, self._start, frozenset())
        reader, followed = self.reader, self.followed
        assert reader is not None
        assert followed is not None
        state = followed.state.position
        bounds = None if state is None else state.find_unread()
        if bounds is not None and state is not None and self._chance.random() < 0.5:
            after = -1 if bounds[0] is None else int(bounds[0][0])
            position = self._read(state, after, bounds[1], frozenset(reader.passed))
            if position is not state:
                followed.move(position)
                reader.passed.clear()
                reader.note_rows()
            return
        if not self.sent:
            self.sent = self._server.send(reader.position.lsn)
            reader.rewind()
        for _ in range(min(len(self.sent), self._chance.randrange(1, 8))):
            reader.feed(self.sent.pop(0))
        self.output += reader.output.take()  # type: ignore[attr-defined]


def apply(output: list[events.Event]) -> dict[int, int]:
    """The rows that events come to. Raises if one does not fit."""
    rows: dict[int, int] = {}
    for event in output:
        if isinstance(event, events.TruncateTableEvent):
            rows.clear()
            continue
        assert isinstance(event, events.DataChangeEvent)
        if event.before is not None:
            assert rows.get(event.before[0]) == event.before[1], f"{event} does not follow {rows}"
            del rows[event.before[0]]
        if event.after is not None:
            assert event.after[0] not in rows, f"{event} is there already"
            rows[event.after[0]] = event.after[1]
    return rows


def run(seed: int) -> None:
    chance = random.Random(seed)
    server = Server(chance)
    for _ in range(chance.randrange(20)):  # what was before the slot
        _step_server(server, chance, 0.0)
    # A slot is made when the transactions that were open have ended, and others see them.
    while server.running:
        server.commit(server.running[0])
    for transaction in server.log:
        transaction.is_seen = True
    job = Job(server, chance, chance.random() < 0.6, LogPosition(server.lsn + 5))
    truncates = chance.choice([0.0, 0.0, 0.02])
    saved = job.save()
    for _ in range(chance.randrange(50, 400)):
        draw = chance.random()
        if draw < 0.5:
            _step_server(server, chance, truncates)
        elif draw < 0.7:
            job.read_chunk()
        elif draw < 0.9:
            job.step_log()
        elif draw < 0.95:
            saved = job.save()
        else:
            job.restore(saved)
    while server.running:
        server.commit(server.running[0])
    for transaction in server.log:
        transaction.is_seen = True
    for _ in range(2_000):
        job.read_chunk()
        job.step_log()
        if job.reader is not None and not job.sent and job.reader.position.lsn >= server.lsn:
            break
    while job.followed is None or not job.followed.state.is_read:
        job.step_log()
    for _ in range(200):
        job.step_log()
    assert apply(job.output) == server.rows


def _step_server(server: Server, chance: random.Random, truncates: float) -> None:
    draw = chance.random()
    if draw < truncates:
        server.truncate()
    elif draw < 0.2 and len(server.running) < 4:
        server.begin()
    elif draw < 0.7:
        server.change()
    elif draw < 0.85:
        if server.running:
            server.commit(chance.choice(server.running))
    else:
        server.show()


def test_rows_and_changes_add_up() -> None:
    for seed in range(SEED, SEED + 100):
        try:
            run(seed)
        except BaseException:
            print(f"CDC_ALGORITHM_SEED={seed}")
            raise


def _sees_all_before(self: Snapshot, xid: int) -> bool:
    return xid < self.next


def _has_none(self: SeenKeys, key: Any, xid: int) -> bool:
    return False


def _has_by_last(self: SeenKeys, key: Any, xid: int) -> bool:
    snapshot = self._ranges[-1].snapshot
    return snapshot is None or snapshot.sees(xid)


def _always_alike(self: Snapshot, other: Snapshot) -> bool:
    return True


def _keeps_all(self: TablePosition, xid: int) -> TablePosition:
    return self


def _ends_at_once(self: TablePosition) -> int:
    return 0


def _passes_none(self: ChangeReader, tables: Any, position: Any, output: Any, passed: Any = ()) -> None:
    _init(self, tables, position, output)
    self.passed = _Nothing()


class _Nothing(set[int]):
    def add(self, element: int) -> None:
        """Forget it."""


_init = ChangeReader.__init__


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Snapshot, "sees", _sees_all_before),
        (Snapshot, "is_like", _always_alike),
        (SeenKeys, "has", _has_none),
        (SeenKeys, "has", _has_by_last),
        (TablePosition, "forget", _keeps_all),
        (TablePosition, "end_lsn", property(_ends_at_once)),
        (ChangeReader, "__init__", _passes_none),
    ],
)
def test_planted_mistakes_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    for seed in range(SEED, SEED + 3_000):
        try:
            run(seed)
        except (AssertionError, IndexError, KeyError):
            return
    raise AssertionError(f"3000 runs from CDC_ALGORITHM_SEED={SEED} on did not find it")
