"""`PostgresSource` and `PostgresEventSource`: read tables and their changes, as rows with kinds, or as events."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.postgres.cdc import options as cdc
from penstock.connectors.postgres.cdc.enumerator import CdcEnumerator
from penstock.connectors.postgres.cdc.reader import EventReader, RowReader
from penstock.connectors.postgres.client import Address, driver
from penstock.connectors.postgres.text_columns import FAIL as UNREPRESENTABLE_FAIL
from penstock.runtime import connector

PORT = 5432


class PostgresSource(connector.Source[Any, Any]):
    """Reads a PostgreSQL table and then its changes; built by `PostgresSourceBuilder`.

    Records are named rows with row kinds. All subtasks read the tables, and one of them reads the log after that, so
    the changes of a row stay in order. They stay in order up to the operators after a `key_by` if the steps before it
    have the source's parallelism; a source of parallelism 1 followed by more subtasks would distribute the changes of a
    row among them.
    `penstock.connectors.postgres.cdc` describes the guarantees and the reasons for them.
    """

    # The reader of the log has the snapshots of the chunks that others have read: these are not read again.
    restarts_by_reader = False

    def __init__(self, settings: cdc.CdcSettings) -> None:
        self.settings = settings

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if only the table is read."""
        is_bounded = self.settings.startup == cdc.SNAPSHOT
        return connector.Boundedness.BOUNDED if is_bounded else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[Any], restored: Any | None
    ) -> connector.SplitEnumerator[Any]:
        """See `Source`."""
        return CdcEnumerator(context, self.settings, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, Any]:
        """See `Source`."""
        return RowReader(context, self.settings)


class PostgresEventSource(connector.Source[Any, Any]):
    r"""Reads tables and their changes as the events of `penstock.connectors.cdc.events`.

    A table's `CreateTableEvent` comes before its first row, and once more from each reader that has rows of it. The
    rows of the snapshot are inserts, and their `op_ts` is 0.

    Args:
        settings: which tables to read, and how; `make_settings` parses them from strings. The changelog mode has no
            effect: an event has the row before a change if the log contains it, which REPLICA IDENTITY FULL ensures.

    Raises:
        ConfigurationError: if psycopg is not installed.

    Examples:
        >>> from penstock.datastream.connectors.postgres_cdc import PostgresEventSource, make_settings
        >>> source = PostgresEventSource(make_settings("localhost", "shop", r"shop.public.order_\.*", "orders"))
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    restarts_by_reader = False

    def __init__(self, settings: cdc.CdcSettings) -> None:
        driver()
        self.settings = settings

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if only the tables are read."""
        is_bounded = self.settings.startup == cdc.SNAPSHOT
        return connector.Boundedness.BOUNDED if is_bounded else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[Any], restored: Any | None
    ) -> connector.SplitEnumerator[Any]:
        """See `Source`."""
        return CdcEnumerator(context, self.settings, restored, has_events=True)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, Any]:
        """See `Source`."""
        return EventReader(context, self.settings)


class PostgresSourceBuilder:
    """Builds a `PostgresSource`; the names are those used by Flink's connector."""

    def __init__(self) -> None:
        self._hostname: str | None = None
        self._port = PORT
        self._database: str | None = None
        self._username: str | None = None
        self._password: str | None = None
        self._schemas: tuple[str, ...] = ("public",)
        self._tables: tuple[str, ...] = ()
        self._slot = ""
        self._publication: str | None = None
        self._allows_incomplete = False
        self._unrepresentable = UNREPRESENTABLE_FAIL
        self._autocreate = cdc.FILTERED
        self._adds_tables = False
        self._startup = cdc.INITIAL
        self._mode = cdc.ALL
        self._truncates = cdc.FAIL
        self._columns: tuple[str, ...] = ()
        self._chunk_size = cdc.CHUNK_SIZE
        self._heartbeat_ms = cdc.HEARTBEAT_MS
        self._confirm_delay = cdc.CONFIRM_DELAY

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
        """Set the schemas of tables that are named without one; `public` by default. Regular expressions are allowed.

        As in `table_list`, each matches a whole name.
        """
        self._schemas = schemas
        return self

    def table_list(self, *tables: str) -> PostgresSourceBuilder:
        r"""Set the tables: `schema.table`, or only the name; for a partitioned table, name its root.

        Each part may be a regular expression that matches a whole name. A dot in it is written with a backslash:
        `public.order_\.*`. All tables must have the columns that are read, with the same types.
        """
        self._tables = tables
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

    def publication_autocreate_mode(self, mode: str) -> PostgresSourceBuilder:
        """Set the tables of a publication that the job creates: `filtered` (default; the tables read) or `all_tables`.

        With `disabled` the job creates no publication, and fails if it is missing.
        """
        self._autocreate = mode
        return self

    def scan_newly_added_table_enabled(self, is_enabled: bool = True) -> PostgresSourceBuilder:
        """Set whether a job that starts from a savepoint, or recovers, reads tables that have appeared since.

        It adds them to the publication, and reads their rows while the log goes on; by default it ignores them.
        """
        self._adds_tables = is_enabled
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
        if self._hostname is None or self._database is None or not self._tables:
            raise ConfigurationError("a PostgresSource needs hostname(), database() and table_list()")
        url = f"postgresql://{self._hostname}:{self._port}/{quote(self._database)}"
        pairs = tuple(
            dict.fromkeys(
                pair
                for table in self._tables
                for schema in self._schemas
                for pair in cdc.parse_tables(table, self._database, schema)
            )
        )
        return PostgresSource(
            cdc.CdcSettings(
                address=Address(url, self._username, self._password),
                schema=pairs[0][0],
                table=pairs[0][1],
                tables=pairs,
                slot=self._slot,
                publication=self._publication or f"{self._slot}_publication",
                startup=self._startup,
                mode=self._mode,
                truncates=self._truncates,
                outputs=tuple(cdc.Output(name, name) for name in self._columns),
                chunk_size=self._chunk_size,
                heartbeat_ms=self._heartbeat_ms,
                confirm_delay=self._confirm_delay,
                allows_incomplete=self._allows_incomplete,
                unrepresentable=self._unrepresentable,
                autocreate=self._autocreate,
                adds_tables=self._adds_tables,
            )
        )
