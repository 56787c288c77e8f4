"""`PostgresSource`: reads a table and its changes as rows with row kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.postgres.cdc import changes
from penstock.connectors.postgres.cdc.position import CdcSplit
from penstock.connectors.postgres.cdc.reader import CdcReader
from penstock.connectors.postgres.cdc.slots import prepared
from penstock.connectors.postgres.client import Address, driver
from penstock.connectors.postgres.text_columns import FAIL as UNREPRESENTABLE_FAIL
from penstock.runtime import connector

PORT = 5432


class PostgresSource(connector.Source[Any, CdcSplit]):
    """Reads a PostgreSQL table and then its changes; built by `PostgresSourceBuilder`.

    Records are named rows with row kinds. A single subtask reads the table, so the changes of a row stay in order. They
    stay in order up to the operators after a `key_by` if the steps before it have the source's parallelism; a source of
    parallelism 1 followed by more subtasks would distribute the changes of a row among them.
    `penstock.connectors.postgres.cdc` describes the guarantees and the reasons for them.
    """

    def __init__(self, settings: changes.CdcSettings) -> None:
        self.settings = settings

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if only the table is read."""
        is_bounded = self.settings.startup == changes.SNAPSHOT
        return connector.Boundedness.BOUNDED if is_bounded else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[CdcSplit], restored: Any | None
    ) -> connector.SplitEnumerator[CdcSplit]:
        """See `Source`."""
        return CdcEnumerator(context, self.settings, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, CdcSplit]:
        """See `Source`."""
        return CdcReader(context, self.settings)


class CdcEnumerator(connector.SplitEnumerator[CdcSplit]):
    """Prepares the server, and assigns the only split."""

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[CdcSplit],
        settings: changes.CdcSettings,
        restored: list[CdcSplit] | None,
    ) -> None:
        self._context = context
        self._settings = settings
        self._splits = restored
        self._waiting: list[int] = []

    def start(self) -> None:
        """Prepare the server, unless the state was restored."""
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
        """Return the split, unless it is assigned to a reader; None if it is not known yet."""
        return None if self._splits is None else list(self._splits)


class PostgresSourceBuilder:
    """Builds a `PostgresSource`; the names are those used by Flink's connector."""

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
        self._startup = changes.INITIAL
        self._mode = changes.ALL
        self._truncates = changes.FAIL
        self._columns: tuple[str, ...] = ()
        self._chunk_size = changes.CHUNK_SIZE
        self._heartbeat_ms = changes.HEARTBEAT_MS
        self._confirm_delay = changes.CONFIRM_DELAY

    def hostname(self, hostname: str) -> PostgresSourceBuilder:
        """Set the server's host."""
        self._hostname = hostname
        return self

    def port(self, port: int) -> PostgresSourceBuilder:
        """Set the server's port; 5432 by default."""
        self._port = port
        return self

    def database(self, database: str) -> PostgresSourceBuilder:
        """Set the database."""
        self._database = database
        return self

    def username(self, username: str) -> PostgresSourceBuilder:
        """Set the user. It needs REPLICATION, and SELECT on the table."""
        self._username = username
        return self

    def password(self, password: str) -> PostgresSourceBuilder:
        """Set the user's password."""
        self._password = password
        return self

    def schema_list(self, *schemas: str) -> PostgresSourceBuilder:
        """Set the table's schema; `public` by default. Only one is allowed."""
        if len(schemas) != 1:
            raise UnsupportedError("a source reads one table: make a source for each")
        (self._schema,) = schemas
        return self

    def table_list(self, *tables: str) -> PostgresSourceBuilder:
        """Set the table: `schema.table`, or only the name. One is allowed; for a partitioned table, name its root."""
        if len(tables) != 1:
            raise UnsupportedError("a source reads one table: make a source for each")
        schema, _, self._table = tables[0].rpartition(".")
        self._schema = schema or self._schema
        return self

    def column_list(self, *columns: str) -> PostgresSourceBuilder:
        """Set the columns to read; by default all that the table has when the job starts."""
        self._columns = columns
        return self

    def slot_name(self, name: str) -> PostgresSourceBuilder:
        """Set the replication slot. It is created if missing, and stays when the job ends."""
        self._slot = name
        return self

    def publication_name(self, name: str) -> PostgresSourceBuilder:
        """Set the publication; by default the slot's name with the suffix `_publication`. It is created if missing.

        An existing publication must cover all changes of the table, or the job fails before it reads anything: see
        `allow_incomplete_publication`.
        """
        self._publication = name
        return self

    def allow_incomplete_publication(self, is_allowed: bool = True) -> PostgresSourceBuilder:
        """Allow the publication to omit rows (`WHERE`) and kinds of changes (`publish`); by default it may not.

        The snapshot includes all rows of the table regardless.
        """
        self._allows_incomplete = is_allowed
        return self

    def decoding_plugin_name(self, name: str) -> PostgresSourceBuilder:
        """Set the decoding plugin; only `pgoutput`, which every server has, is supported."""
        if name != "pgoutput":
            raise UnsupportedError(f"changes come by pgoutput, not by {name!r}")
        return self

    def startup_mode(self, mode: str) -> PostgresSourceBuilder:
        """Set `initial` (the table, then its changes), `latest-offset`, `committed-offset` or `snapshot`."""
        self._startup = mode
        return self

    def changelog_mode(self, mode: str) -> PostgresSourceBuilder:
        """Set `all`, where updates include the previous row and the table needs REPLICA IDENTITY FULL, or `upsert`."""
        self._mode = mode
        return self

    def truncate_mode(self, mode: str) -> PostgresSourceBuilder:
        """Set how to handle a TRUNCATE of the table: `fail`, or `skip` to continue and keep its rows."""
        self._truncates = mode
        return self

    def unrepresentable_values(self, mode: str) -> PostgresSourceBuilder:
        """Set how to read values that a type cannot hold, such as NaN in a DECIMAL: `fail` (default), or `null`."""
        self._unrepresentable = mode
        return self

    def split_size(self, rows: int) -> PostgresSourceBuilder:
        """Set the number of rows in a chunk of the snapshot."""
        self._chunk_size = rows
        return self

    def heartbeat_interval(self, interval_ms: int) -> PostgresSourceBuilder:
        """Set how often to ask the server for its log position, so that a quiet table does not hold the log back."""
        self._heartbeat_ms = interval_ms
        return self

    def lsn_commit_delay(self, checkpoints: int) -> PostgresSourceBuilder:
        """Set how many completed checkpoints besides the last the server retains the log for; 3 by default."""
        self._confirm_delay = checkpoints
        return self

    def build(self) -> PostgresSource:
        """Build the source.

        Raises:
            ConfigurationError: if a setting is missing or has an invalid value.
        """
        driver()
        if self._hostname is None or self._database is None or self._table is None:
            raise ConfigurationError("a PostgresSource needs hostname(), database() and table_list()")
        url = f"postgresql://{self._hostname}:{self._port}/{quote(self._database)}"
        return PostgresSource(
            changes.CdcSettings(
                address=Address(url, self._username, self._password),
                schema=self._schema,
                table=self._table,
                slot=self._slot,
                publication=self._publication or f"{self._slot}_publication",
                startup=self._startup,
                mode=self._mode,
                truncates=self._truncates,
                outputs=tuple(changes.Output(name, name) for name in self._columns),
                chunk_size=self._chunk_size,
                heartbeat_ms=self._heartbeat_ms,
                confirm_delay=self._confirm_delay,
                allows_incomplete=self._allows_incomplete,
                unrepresentable=self._unrepresentable,
            )
        )
