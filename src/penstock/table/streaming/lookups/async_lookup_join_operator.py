"""A lookup join with an asynchronous table: several batches are in flight at once.

It is an async wait operator, see `async_wait`, whose records are batches; each looks up its distinct keys in one call.
Snapshots include unanswered batches, and a restored task looks them up again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.calls.async_queues import Call
from penstock.core.operators.calls.async_wait import AsyncWaitOperator
from penstock.core.records import Batch
from penstock.table.connectors.lookup import AsyncLookupReader, LookedUp
from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.lookups.lookup_settings import LookupSettings
from penstock.table.streaming.lookups.pairing import Asked, LookupSpec, Pairing, merged, missing
from penstock.table.streaming.lookups.readers import wrap_async_reader
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession


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
            self._coroutines.start(self._reader.close, lambda _, error: None)
