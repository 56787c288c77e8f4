"""`PostgresSource`: a table and its changes, as rows with kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.postgres.cdc.changes import ALL, FAIL
from penstock.connectors.postgres.cdc.position import CdcSplit
from penstock.connectors.postgres.cdc.reader import CdcReader
from penstock.connectors.postgres.cdc.settings import (
    CHUNK_SIZE,
    CONFIRM_DELAY,
    HEARTBEAT_MS,
    INITIAL,
    SNAPSHOT,
    CdcSettings,
    Output,
)
from penstock.connectors.postgres.cdc.slots import prepared
from penstock.connectors.postgres.client import Address, driver
from penstock.connectors.postgres.unrepresentable import FAIL as UNREPRESENTABLE_FAIL
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)

PORT = 5432


class PostgresSource(Source[Any, CdcSplit]):
    """Reads a table of PostgreSQL and then its changes; made by `PostgresSourceBuilder`.

    Records are rows with names and kinds. One subtask reads it, so that the changes of a row keep their order: all the
    way to the operators behind a `key_by` where the steps before it have the source's parallelism. A source of
    parallelism 1 in front of more subtasks would deal the changes of a row out among them.
    `penstock.connectors.postgres.cdc` says what it guarantees, and why.
    """

    def __init__(self, settings: CdcSettings) -> None:
        self.settings = settings

    @property
    def boundedness(self) -> Boundedness:
        """Bounded for the table alone."""
        is_bounded = self.settings.startup == SNAPSHOT
        return Boundedness.BOUNDED if is_bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[CdcSplit], restored: Any | None
    ) -> SplitEnumerator[CdcSplit]:
        """See `Source`."""
        return CdcEnumerator(context, self.settings, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, CdcSplit]:
        """See `Source`."""
        return CdcReader(context, self.settings)


class CdcEnumerator(SplitEnumerator[CdcSplit]):
    """Gets the server ready, and hands out the one split."""

    def __init__(
        self, context: SplitEnumeratorContext[CdcSplit], settings: CdcSettings, restored: list[CdcSplit] | None
    ) -> None:
        self._context = context
        self._settings = settings
        self._splits = restored
        self._waiting: list[int] = []

    def start(self) -> None:
        """Get the server ready."""
        if self._splits is None:
            self._context.call_async(lambda: prepared(self._settings), self._on_prepared)

    def _on_prepared(self, split: CdcSplit | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert split is not None
        self._splits = [split]
        waiting, self._waiting = self._waiting, []
        for subtask_index in waiting:
            self.handle_split_request(subtask_index)

    def handle_split_request(self, subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        if self._splits is None:
            self._waiting.append(subtask_index)
        elif self._splits:
            self._context.assign_split(self._splits.pop(), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[CdcSplit], subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        if splits:
            self._splits = list(splits)

    def snapshot_state(self, checkpoint_id: int) -> list[CdcSplit] | None:
        """The split, unless a reader has it; None where it is not known yet."""
        return None if self._splits is None else list(self._splits)


class PostgresSourceBuilder:
    """Builds a `PostgresSource`, with the names of Flink's connector."""

    def __init__(self) -> None:
        self._hostname: str | None = None
        self._port = PORT
        self._database: str | None = None
        self._username: str | None = None
        self._password: str | None = None
        self._schema = "public"
        self._table: str | None = None
        self._slot = ""
        self._publication: str | None = None
        self._allows_incomplete = False
        self._unrepresentable = UNREPRESENTABLE_FAIL
        self._startup = INITIAL
        self._mode = ALL
        self._truncates = FAIL
        self._columns: tuple[str, ...] = ()
        self._chunk_size = CHUNK_SIZE
        self._heartbeat_ms = HEARTBEAT_MS
        self._confirm_delay = CONFIRM_DELAY

    def hostname(self, hostname: str) -> PostgresSourceBuilder:
        """Where the server is."""
        self._hostname = hostname
        return self

    def port(self, port: int) -> PostgresSourceBuilder:
        """Its port; 5432 by default."""
        self._port = port
        return self

    def database(self, database: str) -> PostgresSourceBuilder:
        """The database."""
        self._database = database
        return self

    def username(self, username: str) -> PostgresSourceBuilder:
        """Who connects. It needs REPLICATION, and SELECT on the table."""
        self._username = username
        return self

    def password(self, password: str) -> PostgresSourceBuilder:
        """With which password."""
        self._password = password
        return self

    def schema_list(self, *schemas: str) -> PostgresSourceBuilder:
        """The schema of the table; `public` by default. There is one."""
        if len(schemas) != 1:
            raise UnsupportedError("a source reads one table: make a source for each")
        (self._schema,) = schemas
        return self

    def table_list(self, *tables: str) -> PostgresSourceBuilder:
        """The table, `schema.table` or the name alone. There is one; of a partitioned table, its root."""
        if len(tables) != 1:
            raise UnsupportedError("a source reads one table: make a source for each")
        schema, _, self._table = tables[0].rpartition(".")
        self._schema = schema or self._schema
        return self

    def column_list(self, *columns: str) -> PostgresSourceBuilder:
        """Which columns; by default all that the table has when the job starts."""
        self._columns = columns
        return self

    def slot_name(self, name: str) -> PostgresSourceBuilder:
        """The replication slot; it is made if it is not there, and stays when the job ends."""
        self._slot = name
        return self

    def publication_name(self, name: str) -> PostgresSourceBuilder:
        """The publication; it is made if it is not there. By default the slot's name with `_publication`.

        One that is there has to give all changes of the table, or the job fails before it reads anything: see
        `allow_incomplete_publication`.
        """
        self._publication = name
        return self

    def allow_incomplete_publication(self, is_allowed: bool = True) -> PostgresSourceBuilder:
        """Whether the publication may leave out rows (`WHERE`) and kinds of changes (`publish`); by default it may not.

        The snapshot has all rows of the table all the same.
        """
        self._allows_incomplete = is_allowed
        return self

    def decoding_plugin_name(self, name: str) -> PostgresSourceBuilder:
        """`pgoutput`, which every server has; there is no other."""
        if name != "pgoutput":
            raise UnsupportedError(f"changes come by pgoutput, not by {name!r}")
        return self

    def startup_mode(self, mode: str) -> PostgresSourceBuilder:
        """`initial` (the table, then its changes), `latest-offset`, `committed-offset` or `snapshot`."""
        self._startup = mode
        return self

    def changelog_mode(self, mode: str) -> PostgresSourceBuilder:
        """`all`: updates come with the row before, for which the table needs REPLICA IDENTITY FULL. Or `upsert`."""
        self._mode = mode
        return self

    def truncate_mode(self, mode: str) -> PostgresSourceBuilder:
        """What happens when the table is emptied by TRUNCATE: `fail`, or `skip` to go on with its rows still there."""
        self._truncates = mode
        return self

    def unrepresentable_values(self, mode: str) -> PostgresSourceBuilder:
        """Set how to read values that a type cannot hold, such as NaN in a DECIMAL: `fail` (default), or `null`."""
        self._unrepresentable = mode
        return self

    def split_size(self, rows: int) -> PostgresSourceBuilder:
        """How many rows a chunk of the snapshot has."""
        self._chunk_size = rows
        return self

    def heartbeat_interval(self, interval_ms: int) -> PostgresSourceBuilder:
        """How often the server is asked how far its log is, so that a quiet table does not hold it back."""
        self._heartbeat_ms = interval_ms
        return self

    def lsn_commit_delay(self, checkpoints: int) -> PostgresSourceBuilder:
        """How many completed checkpoints the server keeps the log for besides the last; 3 by default."""
        self._confirm_delay = checkpoints
        return self

    def build(self) -> PostgresSource:
        """The source.

        Raises:
            ConfigurationError: if something is missing, or has no such value.
        """
        driver()
        if self._hostname is None or self._database is None or self._table is None:
            raise ConfigurationError("a PostgresSource needs hostname(), database() and table_list()")
        url = f"postgresql://{self._hostname}:{self._port}/{quote(self._database)}"
        return PostgresSource(
            CdcSettings(
                address=Address(url, self._username, self._password),
                schema=self._schema,
                table=self._table,
                slot=self._slot,
                publication=self._publication or f"{self._slot}_publication",
                startup=self._startup,
                mode=self._mode,
                truncates=self._truncates,
                outputs=tuple(Output(name, name) for name in self._columns),
                chunk_size=self._chunk_size,
                heartbeat_ms=self._heartbeat_ms,
                confirm_delay=self._confirm_delay,
                allows_incomplete=self._allows_incomplete,
                unrepresentable=self._unrepresentable,
            )
        )
