"""A table of names by numbers that is asked in tests, and operators that ask it in a harness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from tests.table.streaming.joined import Change, create_batch

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import DataType, IntType, VarCharType
from penstock.sql.logical.nodes import SHORT
from penstock.sql.stream.lookups.lookup_join import AsyncLookupJoinOperator, KeyedLookupJoinOperator, LookupJoinOperator
from penstock.sql.stream.lookups.pairing import LookupSpec
from penstock.sql.stream.lookups.settings import LookupSettings
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import AsyncLookupReader, ColumnsLookup, LookedUp, LookupReader
from penstock.sql.typed import Field
from penstock.testing import OneInputOperatorHarness

#: of left rows: an id, and the number that is asked for; and of rows of the table: a number, and a name
LEFT = (IntType(), IntType())
RIGHT = (IntType(), VarCharType())


class Names:
    """The table: rows of a number and a name, which tests may change. `asked`: the keys of each call."""

    def __init__(self, *rows: tuple[int, str]) -> None:
        self.rows = list(rows)
        self.asked: list[list[int]] = []
        self.failures = 0
        self.is_open = False

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """The rows of keys."""
        assert self.is_open
        self.asked.append(keys.column(0).to_pylist())
        if self.failures:
            self.failures -= 1
            raise OSError("the table is away")
        numbers, names = ([row[place] for row in self.rows] for place in (0, 1))
        arrays = [to_column(numbers, RIGHT[0]), to_column(names, RIGHT[1])]
        return ColumnsLookup(pa.table(arrays, ["number", "name"]), [0]).lookup(keys)


class NamesReader(LookupReader):
    """Answers at once."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def open(self) -> None:
        """See `LookupReader`."""
        self._names.is_open = True

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        return self._names.lookup(keys)

    def close(self) -> None:
        """See `LookupReader`."""
        self._names.is_open = False


class LaterNames(AsyncLookupReader):
    """Answers after as many ms as `delay_ms` says for the first key."""

    def __init__(self, names: Names, delay_ms: Callable[[int], int]) -> None:
        self._names = names
        self._delay_ms = delay_ms

    async def open(self) -> None:
        """See `AsyncLookupReader`."""
        self._names.is_open = True

    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `AsyncLookupReader`."""
        await asyncio.sleep(self._delay_ms(keys.column(0)[0].as_py()) / 1000)
        return self._names.lookup(keys)

    async def close(self) -> None:
        """See `AsyncLookupReader`."""
        self._names.is_open = False


def spec(keeps_left: bool = True) -> LookupSpec:
    """Left rows with the rows of their numbers."""
    return LookupSpec(
        keeps_left=keeps_left,
        key_values=(Field(LEFT[1], 1),),
        where=None,
        expressions=(Field(RIGHT[0], 0), Field(RIGHT[1], 1)),
        asks=None,
        condition=None,
        table_types=RIGHT,
        left_types=LEFT,
        right_types=RIGHT,
        names=("c0", "c1", "c2", "c3"),
    )


class Asking:
    """A look-up join in a harness. `left`: the types of left rows."""

    def __init__(
        self,
        factory: Callable[[], StreamOperator],
        *snapshots: bytes,
        left: Sequence[DataType] = LEFT,
        **options: Any,
    ) -> None:
        self._factory = factory
        self._left = left
        self.harness = OneInputOperatorHarness(factory, **options)
        self.harness.restore(*snapshots)
        self.harness.open()
        self._batches: list[ColumnBatch] = []
        self.harness.captured.collect = self._batches.append  # type: ignore[assignment, method-assign]

    def send(self, *changes: Change) -> list[Change]:
        """A batch; what comes out."""
        self.harness.operator.process_batch(create_batch(self._left, changes))
        self.harness.advance_processing_time(0)
        return self.taken()

    def wait(self, by_ms: int) -> list[Change]:
        """Let time pass; what comes out."""
        self.harness.advance_processing_time(by_ms)
        return self.taken()

    def taken(self) -> list[Change]:
        """What has come out since the last look: the kind, the id of the left row, the name."""
        found: list[Change] = []
        for batch in self._batches:
            ids, names = (to_values(batch.columns.column(at), kind) for at, kind in ((0, self._left[0]), (3, RIGHT[1])))
            kinds = batch.kinds or bytes(len(batch))
            found += [(SHORT[kind], one, name) for kind, one, name in zip(kinds, ids, names, strict=True)]
        self._batches.clear()
        return found

    def restored(self) -> Asking:
        """Another one that goes on from a snapshot of this one."""
        snapshot = self.harness.snapshot(1)
        self.harness.close()
        return Asking(self._factory, snapshot, left=self._left)


def at_once(names: Names, settings: LookupSettings, keeps_left: bool = True) -> Asking:
    """A look-up join whose table answers at once."""
    create = partial(NamesReader, names)
    return Asking(partial(LookupJoinOperator, spec(keeps_left), create, settings, StreamSession()))


def later(names: Names, settings: LookupSettings, delay_ms: Callable[[int], int] = lambda key: 10) -> Asking:
    """A look-up join whose table answers later."""
    create = partial(LaterNames, names, delay_ms)
    return Asking(partial(AsyncLookupJoinOperator, spec(), create, settings, StreamSession()))


def keyed(
    names: Names, *snapshots: bytes, key: Sequence[int] = (0,), left: Sequence[DataType] = LEFT, **options: Any
) -> Asking:
    """A look-up join that keeps what it has found."""
    create = partial(NamesReader, names)
    arguments = replace(spec(), left_types=tuple(left)), create, LookupSettings(), StreamSession(), key, (0, 1)
    return Asking(partial(KeyedLookupJoinOperator, *arguments), *snapshots, left=left, **options)
