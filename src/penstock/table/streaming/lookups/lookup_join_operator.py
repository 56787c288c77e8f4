"""A look-up join whose table answers at once."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.connectors.held_table import HeldTable
from penstock.table.connectors.lookup import LookedUp, LookupReader
from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.lookups.lookup_settings import LookupSettings
from penstock.table.streaming.lookups.pairing import Asked, LookupSpec, Pairing
from penstock.table.streaming.lookups.readers import reader_of
from penstock.table.streaming.lookups.reloading import ReloadingReader
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession


class LookupJoinOperator(EvaluatingOperator):
    """Asks for the distinct keys of a batch in one call, and joins the answer to the batch. It keeps no state.

    Args:
        spec: what is asked, and what becomes of the answer.
        create_reader: makes what is asked.
        settings: the cache, and when it asks again.
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
        """Connect to the table, and make what runs the expressions."""
        self._pairing = Pairing(self._spec, self.running(self._session))
        reader, reload = self._create_reader(), self._settings.reload
        if reload is not None:
            assert isinstance(reader, HeldTable)
            reader = self._reloading = ReloadingReader(reader, reload, self.context.now_ms, self._session.zone)
        self._reader = reader_of(reader, self._settings, self.context.now_ms)
        try:
            self._reader.open()
        except Exception as error:
            raise UserCodeError(self.context.operator_name, None, "open()") from error

    def next_timer_ms(self) -> int | None:
        """When a table that is held is read again."""
        return None if self._reloading is None else self._reloading.due_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Read a table that is held again."""
        if self._reloading is not None:
            try:
                self._reloading.go_on()
            except Exception as error:
                raise UserCodeError(self.context.operator_name, None, "reading a table again") from error

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Ask, and join."""
        taken = as_columns(batch, self.context.operator_name)
        try:
            asked = self._pairing.asked(taken)
            joined = self._pairing.joined(taken, asked, self.answer(asked, len(taken)))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error
        if len(joined):
            self.output.collect(joined)

    def answer(self, asked: Asked, rows: int) -> LookedUp:
        """What the table has for the keys of so many rows."""
        assert self._reader is not None
        if not asked.keys.num_rows:
            return self._pairing.nothing()
        try:
            return self._reader.lookup(asked.keys)
        except Exception as error:
            raise UserCodeError(self.context.operator_name, f"a look-up for a batch of {rows} rows") from error

    def close(self) -> None:
        """Leave the table."""
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            super().close()
