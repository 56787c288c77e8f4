"""The settings of a CDC source: the table to read, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.cdc.changes import ALL, FAIL, SKIP, UPSERT
from penstock.connectors.postgres.client import Address
from penstock.connectors.postgres.unrepresentable import FAIL as UNREPRESENTABLE_FAIL
from penstock.connectors.postgres.unrepresentable import MODES

#: The table's rows and then its changes; changes from now on; changes that the slot has retained; only the table's
#: rows.
INITIAL, LATEST, COMMITTED, SNAPSHOT = "initial", "latest-offset", "committed-offset", "snapshot"
STARTUP_MODES: Final = (INITIAL, LATEST, COMMITTED, SNAPSHOT)
CHUNK_SIZE: Final = 8_096
HEARTBEAT_MS: Final = 30_000
CONFIRM_DELAY: Final = 3


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the output.

    Attributes:
        name: its name in the output.
        column: the table's column; None for metadata of the change.
        type: its Arrow type; None for the column's default.
        metadata: `database_name`, `schema_name`, `table_name` or `op_ts`.
    """

    name: str
    column: str | None
    type: Any = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The settings made by `PostgresSourceBuilder`, which explains them.

    Attributes:
        outputs: the columns of the output; empty for all columns of the table.
        allows_incomplete: whether the publication may omit rows and kinds of changes.
        unrepresentable: how to read values that a type cannot hold, see `unrepresentable.py`.
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

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("startup mode", self.startup, STARTUP_MODES),
            ("changelog mode", self.mode, (ALL, UPSERT)),
            ("mode of truncates", self.truncates, (FAIL, SKIP)),
            ("mode of unrepresentable values", self.unrepresentable, MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"the {setting} is {' or '.join(known)}, not {value!r}")
        if self.chunk_size < 1 or self.heartbeat_ms < 1 or self.confirm_delay < 0:
            raise ConfigurationError("sizes of chunks and heartbeat intervals are above 0, and delays not below")
        if not self.slot and self.startup != SNAPSHOT:
            raise ConfigurationError("the changes of a table are kept for a slot: name it (slot.name)")

    @property
    def path(self) -> str:
        """The table's path, in the form that `quoted_path` expects."""
        return ".".join('"' + name.replace('"', '""') + '"' for name in (self.schema, self.table))
