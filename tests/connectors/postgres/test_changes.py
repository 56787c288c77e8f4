"""What changes of the log mean beside the rows that were read before, without a server."""

from __future__ import annotations

import os
import random
import struct
from typing import Any
from unittest.mock import Mock

import psycopg
import pyarrow as pa
import pytest

from penstock.base.errors import OperationError
from penstock.connectors.cdc.events import TableId, TableSchema
from penstock.connectors.postgres.cdc import changes
from penstock.connectors.postgres.cdc.changes import ChangeReader, FollowedTable
from penstock.connectors.postgres.cdc.options import ALL, SKIP, UPSERT
from penstock.connectors.postgres.cdc.outputs import EventOutput, RowOutput
from penstock.connectors.postgres.cdc.position import (
    CdcTable,
    KeyColumn,
    KeyRange,
    LogPosition,
    Snapshot,
    TablePosition,
    TableState,
)
from penstock.connectors.postgres.cdc.schemas import LoggedSchema

OID = 7


def skipped(*snapshots: Snapshot) -> list[Any]:
    """What is counted where transaction 20 empties the table, of which each snapshot has read a range of keys."""
    address: Any = None
    table = CdcTable(address, "t", OID, ("id",), (pa.int64(),), ())
    ranges = [KeyRange((number,), snapshot) for number, snapshot in enumerate(snapshots)]
    counts: list[Any] = []
    followed = FollowedTable(TableState(TableId("public", "t"), OID, None), table)
    followed.move(TablePosition(tuple(ranges)))
    output = RowOutput(UPSERT, SKIP, lambda *counted: counts.append(counted))
    reader = ChangeReader([followed], LogPosition(0), output)
    reader.feed(b"B" + struct.pack(">QqI", 100, 0, 20))
    reader.feed(b"T" + struct.pack(">IBI", 1, 0, OID))
    return counts


BEFORE, AFTER = Snapshot(20, frozenset(), 90), Snapshot(21, frozenset(), 110)


def test_a_table_that_was_emptied_before_it_was_read() -> None:
    """Then the rows are those that came after; there is nothing to skip."""
    assert skipped(AFTER, AFTER) == []


def test_a_table_that_is_emptied_after_it_was_read() -> None:
    """Also where the log was already behind that when the last rows were read, which did not see it."""
    late = Snapshot(20, frozenset(), 110)
    assert skipped(BEFORE, late) == skipped(BEFORE, BEFORE) == [("truncatesSkipped", 1)]


def test_a_table_that_is_emptied_while_it_is_read() -> None:
    """Some of the rows are older than that and some newer, whatever is to become of truncates."""
    with pytest.raises(OperationError, match="table t was truncated while its rows were read"):
        skipped(BEFORE, AFTER)


# --- many changes at once --------------------------------------------------------------------------------------------

SEED = int(os.environ.get("CHANGES_SEED") or random.randrange(1, 1 << 31))
ID, DECIMAL, MOMENT = pa.int64(), pa.decimal128(12, 2), pa.timestamp("us")
#: the columns that tables may have: type, OID of the type, its modifier, texts of values
COLUMNS: dict[str, tuple[pa.DataType, int, int, list[bytes]]] = {
    "id": (ID, 20, -1, [b"0", b"7", b"-9223372036854775808", b"9223372036854775807"]),
    "name": (pa.string(), 25, -1, [b"", b"tea", "grün".encode(), "茶\n".encode(), b"\\N", b'{"a,b"}', b"x" * 300]),
    "price": (pa.float64(), 701, -1, [b"0", b"-0", b"NaN", b"Infinity", b"1e-300", b"0.1"]),
    "amount": (DECIMAL, 1700, (12 << 16 | 2) + 4, [b"0.00", b"-9999999999.99", b"12.30"]),
    "created": (MOMENT, 1114, -1, [b"2026-01-31 12:00:00.123456", b"0001-01-01 00:00:00", b"9999-12-31 23:59:59"]),
    "is_hot": (pa.bool_(), 16, -1, [b"t", b"f"]),
    "raw": (pa.binary(), 17, -1, [b"\\x", b"\\x00ff"]),
}


class Log:
    """Random messages of two tables, whose columns change."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._lsn = chance, 1_000
        self.columns = {oid: self._draw_columns() for oid in (OID, 16_512)}
        self.messages: list[bytes] = []

    def _draw_columns(self) -> list[str]:
        others = [name for name in COLUMNS if name not in ("id", "name")]
        return ["id", "name", *self._chance.sample(others, self._chance.randrange(len(others)))]

    def _describe(self, oid: int) -> None:
        columns = self.columns[oid]
        parts = [b"R", struct.pack(">I", oid), b"public\0t%d\0f" % oid, struct.pack(">H", len(columns))]
        for name in columns:
            _, type_oid, modifier, _ = COLUMNS[name]
            parts += [bytes([name == "id"]), name.encode(), b"\0", struct.pack(">Ii", type_oid, modifier)]
        self.messages.append(b"".join(parts))

    def _row(self, oid: int, key: bytes | None, nulls: float, unsent: float) -> bytes:
        columns = self.columns[oid]
        parts = [struct.pack(">H", len(columns))]
        for name in columns:
            texts = COLUMNS[name][3]
            draw = self._chance.random()
            if name == "id":
                text: bytes | None = key or self._chance.choice(texts)
            elif draw < unsent:
                parts.append(b"u")
                continue
            else:
                text = None if draw < unsent + nulls else self._chance.choice(texts)
            parts.append(b"n" if text is None else b"t" + struct.pack(">I", len(text)) + text)
        return b"".join(parts)

    def _change(self, oid: int, oddity: float) -> bytes:
        chance = self._chance
        head, nulls = struct.pack(">I", oid), chance.choice((0.0, 0.3))
        kind, key = chance.choice("IIUUD"), chance.choice(COLUMNS["id"][3])
        is_odd = chance.random() < oddity
        if kind == "I":
            return b"I" + head + b"N" + self._row(oid, key, nulls, 0)
        if kind == "D":
            return (
                b"D" + head + (b"K" + self._row(oid, key, 0.5, 0) if is_odd else b"O" + self._row(oid, key, nulls, 0))
            )
        unsent = chance.choice((0.0, 0.3))
        if is_odd and chance.random() < 0.3:
            return b"U" + head + b"N" + self._row(oid, key, nulls, 0)
        old = b"O" + self._row(oid, key, nulls, 0)
        return b"U" + head + old + b"N" + self._row(oid, None if is_odd else key, nulls, unsent)

    def write(self, count: int, oddity: float) -> None:
        """Write transactions; some changes are of the kind that each has to be looked at."""
        chance = self._chance
        for oid in self.columns:
            self._describe(oid)
        while count > 0:
            size, self._lsn = chance.choice((0, 1, 1, 3, 40)), self._lsn + 10
            self.messages.append(b"B" + struct.pack(">QqI", self._lsn, chance.choice((0, 5_000, -7_000)), 20))
            for _ in range(size):
                draw = chance.random()
                if draw < 0.01:
                    oid = chance.choice([*self.columns])
                    self.columns[oid] = self._draw_columns()
                    self._describe(oid)
                elif draw < 0.02:
                    self.messages.append(b"I" + struct.pack(">I", 99) + b"N\0\0")
                self.messages.append(self._change(chance.choice((OID, OID, 16_512)), oddity))
            self._lsn += 5
            self.messages.append(b"C\0" + struct.pack(">QQq", self._lsn - 5, self._lsn, 0))
            count -= size


def build_reader(form: str, position: LogPosition) -> ChangeReader:
    address: Any = None
    names, tables = ("name", "id"), []
    for oid in (OID, 16_512):
        key = (KeyColumn('"id"', 1, True, True, "bigint"),)
        table = CdcTable(address, f"t{oid}", oid, names, (pa.string(), ID), key, id=TableId("public", f"t{oid}"))
        tables.append(FollowedTable(TableState(table.id, oid, None), table))
    output: Any = RowOutput(form, SKIP, lambda *_: None)
    if form == "events":
        catalog = LoggedSchema(TableSchema((), ("id",)), ())
        output = EventOutput("fail", lambda _: catalog, str)
    return ChangeReader(tables, position, output)


def take(reader: ChangeReader) -> list[str]:
    """What a reader has collected, and its position."""
    taken: Any = reader.output.take()  # type: ignore[attr-defined]
    if isinstance(reader.output, EventOutput):
        return [*map(repr, taken)]
    if taken is None:
        return []
    batch, gathered = taken
    assert all(len(each) == batch.num_rows for each in gathered)
    return [repr(row) for row in zip(*(column.to_pylist() for column in batch.columns), *gathered, strict=True)]


def read(reader: ChangeReader, chance: random.Random, messages: list[bytes], size: int) -> tuple[list[str], str]:
    """What a reader has collected of messages, so many at a time, and the error that it raised."""
    collected: list[str] = []
    at = 0
    try:
        while at < len(messages):
            count = chance.randrange(1, size + 1)
            reader.feed(*messages[at : at + count])
            at += count
            if chance.random() < 0.3:
                collected += take(reader)
    except OperationError as error:
        return collected, str(error)
    return collected + take(reader), ""


@pytest.mark.parametrize("form", ["events", ALL, UPSERT])
def test_changes_decoded_together_are_those_decoded_one_by_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"CHANGES_SEED={SEED}")
    together = 0
    for seed in range(SEED, SEED + 40):
        chance = random.Random(seed)
        log = Log(chance)
        log.write(chance.choice((5, 300)), chance.choice((0.0, 0.0, 0.05)))
        position = LogPosition(0, 1_010, 2) if chance.random() < 0.2 else LogPosition(chance.choice((0, 1_040)))
        monkeypatch.setattr(changes, "TOGETHER_MIN", 1 << 30)
        single = build_reader(form, position)
        expected, error = read(single, chance, log.messages, 1)
        monkeypatch.setattr(changes, "TOGETHER_MIN", chance.choice((0, 1, 8)))
        reader = build_reader(form, position)
        spy = Mock(side_effect=reader.output.add_together)
        monkeypatch.setattr(reader.output, "add_together", spy)
        actual, other_error = read(reader, chance, log.messages, chance.choice((3, 50, 1_000)))
        assert other_error == error, seed
        if error:  # the changes before it may have been taken or not
            actual, expected = (some[: min(len(actual), len(expected))] for some in (actual, expected))
        else:
            assert reader.position == single.position, seed
        assert actual == expected, seed
        together += spy.call_count
    assert together > 40


def test_no_change_is_skipped_after_the_catalog_could_not_be_asked() -> None:
    """The server sends the transaction again, and the change that needed the catalog is the first to be collected."""
    log = Log(random.Random(SEED))
    log.write(30, 0.0)
    first = next(at for at, data in enumerate(log.messages) if data[:1] in b"IUD" and data[1:5] != b"\0\0\0\x63")
    reader = build_reader("events", LogPosition(0))
    answers = [psycopg.OperationalError("the server is gone")]

    assert isinstance(reader.output, EventOutput)
    ask = reader.output._describe

    def describe(oid: int) -> LoggedSchema | None:
        if answers:
            raise answers.pop()
        return ask(oid)

    reader.output._describe = describe
    with pytest.raises(psycopg.OperationalError):
        reader.feed(*log.messages[: first + 5])
    assert take(reader) == []
    reader.rewind()
    reader.feed(*log.messages)
    whole = build_reader("events", LogPosition(0))
    whole.feed(*log.messages)
    assert take(reader) == take(whole)
    assert reader.position == whole.position


def test_a_reader_that_begins_at_a_position_collects_what_comes_after_it() -> None:
    """Although the server sends all of the log again."""
    print(f"CHANGES_SEED={SEED}")
    for seed in range(SEED, SEED + 20):
        chance = random.Random(seed)
        log = Log(chance)
        log.write(200, 0.0)
        first = build_reader(UPSERT, LogPosition(0))
        at = chance.randrange(len(log.messages))
        first.feed(*log.messages[:at])
        take(first)
        second = build_reader(UPSERT, first.position)
        first.feed(*log.messages[at:])
        second.feed(*log.messages)
        second.feed(*(data for data in log.messages if data[:1] != b"R"))  # and again
        assert take(second) == take(first), seed
        assert second.position == first.position, seed
