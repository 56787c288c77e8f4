"""A lookup join with a synchronous table."""

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
from penstock.table.streaming.lookups.readers import wrap_reader
from penstock.table.streaming.lookups.reloading import ReloadingReader
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession


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
        self._pairing = Pairing(self._spec, self.running(self._session))
        reader, reload = self._create_reader(), self._settings.reload
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
