"""Lookup joins with a synchronous table, with an asynchronous table, and over a changelog with retractions.

`AsyncLookupJoinOperator` is an async wait operator (`AsyncWaitOperator`) whose records are batches: several are in
flight at once, and each looks up its distinct keys in one call. Snapshots include unanswered batches, and a restored
task looks them up again.

`KeyedLookupJoinOperator` joins a changelog that retracts the rows it has emitted. Two lookups of the same key may
return different rows. So the matches of a row are stored while the row exists; its retraction retracts the same
matches. A retraction may arrive before its insert; then neither emits anything. Rows are partitioned by their upsert
key, or by all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.calls import AsyncWaitOperator, Call
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.logical.nodes import DELETE, UPDATE_BEFORE
from penstock.sql.stream.lookups.cache import ReloadingReader, wrap_async_reader, wrap_reader
from penstock.sql.stream.lookups.pairing import (
    Asked,
    KnownMatches,
    LookupSpec,
    Pairing,
    build_known_matches,
    merged,
    missing,
)
from penstock.sql.stream.lookups.settings import LookupSettings
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_columns, pack_kinds, to_canonical_rows
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.tables.connector import AsyncLookupReader, HeldTable, LookedUp, LookupReader


class LookupJoinOperator(EvaluatingOperator):
    """Looks up the distinct keys of a batch in one call, and joins the answer to the batch. The operator is stateless.

    Args:
        spec: the keys to look up, and how to join the answer.
        create_reader: creates the reader of the table.
        settings: the cache and the retries.
    """

    def __init__(
        self,
        spec: LookupSpec,
        create_reader: Callable[[], LookupReader],
        settings: LookupSettings,
        session: StreamSession,
    ) -> None:
        self._spec = spec
        self._create_reader = create_reader
        self._settings = settings
        self._session = session
        self._reader: LookupReader | None = None
        self._reloading: ReloadingReader | None = None

    def open(self) -> None:
        """Connect to the table, and build the evaluators of the expressions."""
        session = self.running(self._session)
        self._pairing = Pairing(self._spec, session)
        reader, reload = self._create_reader(), self._settings.reload
        self._known: KnownMatches | None = None
        if isinstance(reader, HeldTable) and reload is None and not self._settings.miss_retries:
            self._known = build_known_matches(self._spec, self._pairing, session, self.answer)
        if reload is not None:
            assert isinstance(reader, HeldTable)
            reader = self._reloading = ReloadingReader(reader, reload, self.context.now_ms, self._session.zone)
        self._reader = wrap_reader(reader, self._settings, self.context.now_ms)
        try:
            self._reader.open()
        except Exception as error:
            raise UserCodeError(self.context.operator_name, None, "open()") from error

    def next_timer_ms(self) -> int | None:
        """Return when a fully cached table is next reloaded."""
        return None if self._reloading is None else self._reloading.due_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Reload a fully cached table if it is due."""
        if self._reloading is not None:
            try:
                self._reloading.go_on()
            except Exception as error:
                raise UserCodeError(self.context.operator_name, None, "reading a table again") from error

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the keys of a batch, and join the answer."""
        records = as_columns(batch, self.context.operator_name)
        try:
            joined = None if self._known is None else self._known.join(records)
            if joined is None:
                request = self._pairing.asked(records)
                joined = self._pairing.joined(records, request, self.answer(request, len(records)))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if len(joined):
            self.output.collect(joined)

    def answer(self, request: Asked, rows: int) -> LookedUp:
        """Look up the keys of a batch with this number of rows."""
        assert self._reader is not None
        if not request.keys.num_rows:
            return self._pairing.nothing()
        try:
            return self._reader.lookup(request.keys)
        except Exception as error:
            raise UserCodeError(self.context.operator_name, f"a look-up for a batch of {rows} rows") from error

    def close(self) -> None:
        """Close the reader."""
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            super().close()


class _Asking:
    """The lookup of a batch: its keys, and the rows found so far."""

    __slots__ = ("asked", "found", "places")

    def __init__(self, request: Asked) -> None:
        self.asked = request
        self.found: LookedUp | None = None
        #: the numbers of the keys of the next attempt
        self.places: Any = np.arange(request.keys.num_rows)

    def take(self, answer: LookedUp) -> bool:
        """Add an answer. Returns whether any keys have no rows."""
        self.found = answer if self.found is None else merged(self.found, answer, self.places)
        self.places = missing(self.asked, self.found)
        return bool(len(self.places))


def _restore_batch(content: tuple[Any, ...]) -> ColumnBatch:
    """Build a batch from `ColumnBatch.content`, the form stored in snapshots."""
    return ColumnBatch(*content)


class AsyncLookupJoinOperator(EvaluatingOperator, AsyncWaitOperator):
    """See the module docstring, and `LookupJoinOperator`."""

    def __init__(
        self,
        spec: LookupSpec,
        create_reader: Callable[[], AsyncLookupReader],
        settings: LookupSettings,
        session: StreamSession,
    ) -> None:
        super().__init__(None, settings.is_ordered, settings.timeout_ms, max(1, settings.capacity))
        self._spec = spec
        self._create_reader = create_reader
        self._settings = settings
        self._session = session
        self._asking: dict[Call, _Asking] = {}
        self._is_ready = False
        self._connected: list[BaseException | None] = []
        self._reader: AsyncLookupReader | None = None

    def user_functions(self) -> tuple[Any, ...]:
        """Return no functions, because the table's reader replaces the async function."""
        return ()

    def open(self) -> None:
        """Start connecting to the table. Lookups begin when it is connected."""
        super().open()
        self._pairing = Pairing(self._spec, self.running(self._session))
        self._reader = wrap_async_reader(self._create_reader(), self._settings, self.context.now_ms)
        self._coroutines.start(self._reader.open, lambda _, error: self._connected.append(error))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Enqueue a batch, and look it up if the capacity allows."""
        self._add(Call(as_columns(batch, self.context.operator_name).content(), None))
        self._start_some()

    def process_completions(self) -> bool:
        """See `AsyncWaitOperator`."""
        worked = bool(self._connected)
        if worked:
            error = self._connected.pop()
            if error is not None:
                raise UserCodeError(self.context.operator_name, None, "open()") from error
            self._is_ready = True
        return super().process_completions() or worked

    def _start_some(self) -> bool:
        return self._is_ready and super()._start_some()

    def _attempt(self, call: Call) -> None:
        asking = self._asking.get(call)
        if asking is None:
            asking = self._asking[call] = _Asking(self._asked(call))
        keys = asking.asked.keys
        if len(asking.places) < keys.num_rows:
            keys = keys.take(pa.array(asking.places))
        call.attempt += 1
        call.cancel = self._coroutines.start(partial(self._answer, keys), partial(self._on_return, call, call.attempt))

    def _asked(self, call: Call) -> Asked:
        try:
            return self._pairing.asked(_restore_batch(call.value))
        except TableRuntimeError as error:
            raise self.failed(call.value) from error

    async def _answer(self, keys: pa.RecordBatch) -> LookedUp:
        assert self._reader is not None
        return await self._reader.lookup(keys) if keys.num_rows else self._pairing.nothing()

    def _repeats(self, call: Call, results: Any, error: BaseException | None) -> bool:
        """Record an answer. Returns whether keys without rows are looked up again, as a hint may request."""
        if error is not None:
            raise self.failed(call.value) from error
        has_missing = self._asking[call].take(results)
        if not has_missing or call.attempt > self._settings.miss_retries:
            return False
        self._schedule_retry(self.context.now_ms() + self._settings.miss_delay_ms, call)
        return True

    def _complete(self, call: Call, results: Any, callee: str) -> None:
        asking = self._asking.pop(call)
        assert asking.found is not None
        try:
            joined = self._pairing.joined(_restore_batch(call.value), asking.asked, asking.found)
        except TableRuntimeError as error:
            raise self.failed(call.value) from error
        super()._complete(call, [joined] if len(joined) else [], callee)

    def _emit(self, values: list[Any], times: list[int] | None) -> None:
        for joined in values:
            self.output.collect(joined)

    def failed(self, record: Any) -> UserCodeError:
        """Return the error for a batch."""
        return UserCodeError(self.context.operator_name, f"a look-up for a batch of {len(record[0])} rows")

    def close(self) -> None:
        """Cancel the lookups in flight, and close the reader."""
        super().close()
        if self._reader is not None:
            self._coroutines.release(self._reader.close)


#: The state: key -> left row -> the matches of each insert of the row, as lists of right rows. None represents a
#: retraction that arrived before its insert.
FOUND: Final = "found"


class KeyedLookupJoinOperator(LookupJoinOperator):
    """See the module docstring, and `LookupJoinOperator`.

    Args:
        key: the indices of the columns that rows are partitioned by.
        own: the indices of the columns that identify a row, which exclude processing-time columns.
    """

    is_keyed = True

    def __init__(
        self,
        spec: LookupSpec,
        create_reader: Callable[[], LookupReader],
        settings: LookupSettings,
        session: StreamSession,
        key: Sequence[int],
        own: Sequence[int],
    ) -> None:
        super().__init__(spec, create_reader, settings, session)
        self._keys = RowKeys(key)
        self._own = tuple(own)
        self._equality = RowEquality([spec.left_types[index] for index in own], zeros="merged")

    def open(self) -> None:
        """Open the state."""
        table = self.context.keyed.table(FOUND)
        self._found, self._mark = table.entries(None), table.mark
        super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the inserted rows, and retract the stored matches of the retracted rows."""
        records = as_columns(batch, self.context.operator_name)
        kinds = bytes(len(records)) if records.kinds is None else records.kinds
        goes = np.isin(np.frombuffer(kinds, np.uint8), (UPDATE_BEFORE, DELETE))
        columns = records.columns
        keys = self._keys.of(columns)
        own = [columns.column(index) for index in self._own]
        own_types = [self._spec.left_types[index] for index in self._own]
        rows = to_canonical_rows(own, own_types, len(records), zeros="apart")
        right_rows = self._looked_up(records, goes)
        left: list[int] = []
        right: list[tuple[Any, ...]] = []
        for row, (key, values) in enumerate(zip(keys, rows, strict=True)):
            matches = self._exchanged(key, values, None if goes[row] else right_rows[row])
            left += [row] * len(matches)
            right += matches
        self._mark(None, set(keys))
        if left:
            self._send(columns, kinds, left, right)

    def _looked_up(self, records: ColumnBatch, goes: Any) -> dict[int, list[tuple[Any, ...]]]:
        """Return the right rows of each inserted row."""
        comes = np.flatnonzero(~goes)
        if not len(comes):
            return {}
        rows = records if len(comes) == len(records) else records.take(comes)
        types = self._spec.right_types
        try:
            request = self._pairing.asked(rows)
            paired = self._pairing.pairs(rows, request, self.answer(request, len(rows)))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        tuples = to_canonical_rows(paired.columns, types, len(paired.columns[0]) if paired.columns else 0)
        nothing = (None,) * len(types)
        right_rows: dict[int, list[tuple[Any, ...]]] = {int(row): [] for row in comes}
        for row, index in zip(comes[paired.left].tolist(), paired.right.tolist(), strict=True):
            right_rows[row].append(nothing if index < 0 or not types else tuples[index])
        return right_rows

    def _exchanged(
        self, key: Any, values: tuple[Any, ...], matches: list[tuple[Any, ...]] | None
    ) -> list[tuple[Any, ...]]:
        """Return the right rows to emit for an insert with these matches, or for a retraction. An insert emits nothing
        if its retraction arrived first.
        """
        rows = self._found.setdefault(key, {})
        if matches is None and values not in rows:
            values = self._equality.find(values, rows) or values
        waiting = rows.setdefault(values, [])
        is_other = bool(waiting) and (waiting[0] is None) != (matches is None)
        if not is_other:
            waiting.append(matches)
            return matches or []
        before: list[tuple[Any, ...]] | None = waiting.pop(0)
        if not waiting:
            del rows[values]
        if not rows:
            del self._found[key]
        return before or []

    def _send(self, columns: pa.RecordBatch, kinds: bytes, left: list[int], right: list[tuple[Any, ...]]) -> None:
        indices = np.array(left)
        width = len(self._spec.left_types)
        mine = [column.take(pa.array(indices)) for column in columns.columns[:width]]
        arrays = [*mine, *build_columns(right, self._spec.right_types)]
        sent = pa.RecordBatch.from_arrays(arrays, list(self._spec.names))
        self.output.collect(ColumnBatch(sent, None, pack_kinds(np.frombuffer(kinds, np.uint8)[indices].tobytes())))
