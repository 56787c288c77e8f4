"""The settings of a CDC source: which tables to read, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from penstock.base.errors import ConfigurationError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.postgres.client import Address
from penstock.connectors.postgres.text_columns import FAIL as UNREPRESENTABLE_FAIL
from penstock.connectors.postgres.text_columns import MODES

ALL, UPSERT = "all", "upsert"
FAIL, SKIP = "fail", "skip"
#: The table's rows and then its changes; changes from now on; changes that the slot has retained; only the table's
#: rows.
INITIAL, LATEST, COMMITTED, SNAPSHOT = "initial", "latest-offset", "committed-offset", "snapshot"
STARTUP_MODES: Final = (INITIAL, LATEST, COMMITTED, SNAPSHOT)
CHUNK_SIZE: Final = 8_096
HEARTBEAT_MS: Final = 30_000
CONFIRM_DELAY: Final = 3
#: Publications: of the tables that are read; of all tables; created outside of the job.
FILTERED, ALL_TABLES, DISABLED = "filtered", "all_tables", "disabled"
AUTOCREATE_MODES: Final = (FILTERED, ALL_TABLES, DISABLED)


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the output.

    Attributes:
        name: its name in the output.
        column: the table's column; None for metadata of the change.
        type: its Arrow type; None for the column's default.
        metadata: `database_name`, `schema_name`, `table_name`, `op_ts` or `row_kind`.
    """

    name: str
    column: str | None
    type: Any = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The settings made by `PostgresSourceBuilder`, which explains them.

    Attributes:
        schema: the name of the tables' schema, or a regular expression that matches the whole name.
        table: likewise of the tables.
        tables: more of such pairs; if there are any, `schema` and `table` do not count.
        outputs: the columns of the output; empty for all columns of the table.
        allows_incomplete: whether the publication may omit rows and kinds of changes.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
        autocreate: which tables a publication has that the job makes: `filtered`, `all_tables`; or `disabled`.
        adds_tables: whether a restored job reads tables that it did not know.
    """

    address: Address
    schema: str
    table: str
    slot: str
    publication: str
    startup: str = INITIAL
    mode: str = ALL
    truncates: str = FAIL
    outputs: tuple[Output, ...] = ()
    chunk_size: int = CHUNK_SIZE
    heartbeat_ms: int = HEARTBEAT_MS
    confirm_delay: int = CONFIRM_DELAY
    allows_incomplete: bool = False
    unrepresentable: str = UNREPRESENTABLE_FAIL
    tables: tuple[tuple[str, str], ...] = ()
    autocreate: str = FILTERED
    adds_tables: bool = False

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("startup mode", self.startup, STARTUP_MODES),
            ("changelog mode", self.mode, (ALL, UPSERT)),
            ("mode of truncates", self.truncates, (FAIL, SKIP)),
            ("mode of unrepresentable values", self.unrepresentable, MODES),
            ("mode of making publications", self.autocreate, AUTOCREATE_MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"the {setting} is {' or '.join(known)}, not {value!r}")
        if self.chunk_size < 1 or self.heartbeat_ms < 1 or self.confirm_delay < 0:
            raise ConfigurationError("sizes of chunks and heartbeat intervals are above 0, and delays not below")
        if not self.slot and self.startup != SNAPSHOT:
            raise ConfigurationError("the changes of a table are kept for a slot: name it (slot.name)")

    @property
    def patterns(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a schema and a table that are read: names, or regular expressions."""
        return self.tables or ((self.schema, self.table),)

    @property
    def title(self) -> str:
        """The tables, for messages."""
        return ", ".join(f"{schema}.{table}" for schema, table in self.patterns)

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.address.shown.rpartition("/")[2]

    def get_match(self, table_id: TableId) -> str | None:
        """Return `name` if the table is named, `pattern` if a regular expression matches its name, else None."""
        if tuple(table_id) in self.patterns:
            return NAME
        return PATTERN if any(self.is_match(pair, table_id) for pair in self.patterns) else None

    @staticmethod
    def is_match(pair: tuple[str, str], table_id: TableId) -> bool:
        """Return whether a pair of a schema and a table matches a table."""
        return _matches(pair[0], table_id.schema) and _matches(pair[1], table_id.table)


NAME, PATTERN = "name", "pattern"


def _matches(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:  # it is a name, with characters that mean something in regular expressions
        return False


def parse_tables(text: str, database: str, schema: str = "public") -> tuple[tuple[str, str], ...]:
    r"""Parse a list of tables in the form of Flink CDC's pipelines: `database.schema.table`, several by commas.

    A dot separates names; `\.` is the dot of a regular expression: `shop.public.order_\.*`.
    The database and the schema may be left out.

    Raises:
        ConfigurationError: for another database, or for more than three names.

    Examples:
        >>> from penstock.connectors.postgres.cdc.options import parse_tables
        >>> parse_tables(r"shop.public.order_\.*, cups", "shop")
        (('public', 'order_.*'), ('public', 'cups'))
    """
    pairs = []
    for entry in filter(None, map(str.strip, re.split(r",(?![^{]*\})", text))):
        names = [name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", entry)]
        if len(names) > 3 or not all(names):
            raise ConfigurationError(
                f"a table is named database.schema.table, not {entry!r}: write a backslash before the dots of a "
                "regular expression"
            )
        if len(names) == 3 and not _matches(names[0], database):
            raise ConfigurationError(
                f"table {entry!r} is in another database than {database!r}: make a source for each"
            )
        pairs.append((names[-2] if len(names) > 1 else schema, names[-1]))
    if not pairs:
        raise ConfigurationError("a source needs the names of its tables")
    return tuple(pairs)


def make_settings(
    hostname: str,
    database: str,
    tables: str,
    slot: str,
    *,
    port: int = 5432,
    username: str | None = None,
    password: str | None = None,
    publication: str | None = None,
    **more: Any,
) -> CdcSettings:
    r"""Return the settings of a source of events.

    Args:
        hostname: the server's host.
        database: the database.
        tables: the tables in the form of Flink CDC's pipelines, see `parse_tables`.
        slot: the replication slot; it is created if missing, and stays when the job ends.
        port: the server's port.
        username: the user; it needs REPLICATION, and SELECT on the tables.
        password: the user's password.
        publication: the publication; None for the slot's name with the suffix `_publication`.
        **more: other attributes of `CdcSettings`, such as `startup` and `chunk_size`.

    Raises:
        ConfigurationError: for an invalid value.

    Examples:
        >>> from penstock.datastream.connectors.postgres_cdc import make_settings
        >>> make_settings("localhost", "shop", r"public.order_\.*", "orders").patterns
        (('public', 'order_.*'),)
    """
    pairs = parse_tables(tables, database)
    address = Address(f"postgresql://{hostname}:{port}/{quote(database)}", username, password)
    more = {"mode": UPSERT, **more}
    return CdcSettings(address, *pairs[0], slot, publication or f"{slot}_publication", tables=pairs, **more)
