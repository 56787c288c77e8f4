"""What changes of the log mean beside the rows that were read before, without a server."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.errors import OperationError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.postgres.cdc.changes import ChangeReader, FollowedTable, RowOutput
from penstock.connectors.postgres.cdc.options import SKIP, UPSERT
from penstock.connectors.postgres.cdc.position import (
    CdcTable,
    KeyRange,
    LogPosition,
    Snapshot,
    TablePosition,
    TableState,
)

OID = 7


def skipped(*snapshots: Snapshot) -> list[Any]:
    """What is counted where transaction 20 empties the table, of which each snapshot has read a range of keys."""
    address: Any = None
    table = CdcTable(address, "t", OID, ("id",), (pa.int64(),), ())
    ranges = [KeyRange((number,), one) for number, one in enumerate(snapshots)]
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
