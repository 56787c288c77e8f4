"""What is to be read of a table's changes, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.cdc.changes import ALL, FAIL, SKIP, UPSERT
from penstock.connectors.postgres.client import Address
from penstock.connectors.postgres.unrepresentable import FAIL as UNREPRESENTABLE_FAIL
from penstock.connectors.postgres.unrepresentable import MODES

#: The table as it is, and then its changes; its changes from now on; those that the slot has kept; the table alone.
INITIAL, LATEST, COMMITTED, SNAPSHOT = "initial", "latest-offset", "committed-offset", "snapshot"
STARTUP_MODES: Final = (INITIAL, LATEST, COMMITTED, SNAPSHOT)
CHUNK_SIZE: Final = 8_096
HEARTBEAT_MS: Final = 30_000
CONFIRM_DELAY: Final = 3


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the output.

    Attributes:
        name: its name there.
        column: of the table; None for what is known of the change.
        type: its Arrow type; None for the one that fits the column's.
        metadata: `database_name`, `schema_name`, `table_name` or `op_ts`.
    """

    name: str
    column: str | None
    type: Any = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """See `PostgresSourceBuilder` for what they mean.

    Attributes:
        outputs: the columns of the output; none for all columns of the table.
        allows_incomplete: whether the publication may leave out rows and kinds of changes.
        unrepresentable: what to do with values that a type cannot hold, see `unrepresentable.py`.
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
        for what, value, known in (
            ("startup mode", self.startup, STARTUP_MODES),
            ("changelog mode", self.mode, (ALL, UPSERT)),
            ("mode of truncates", self.truncates, (FAIL, SKIP)),
            ("mode of unrepresentable values", self.unrepresentable, MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"the {what} is {' or '.join(known)}, not {value!r}")
        if self.chunk_size < 1 or self.heartbeat_ms < 1 or self.confirm_delay < 0:
            raise ConfigurationError("sizes of chunks and heartbeat intervals are above 0, and delays not below")
        if not self.slot and self.startup != SNAPSHOT:
            raise ConfigurationError("the changes of a table are kept for a slot: name it (slot.name)")

    @property
    def path(self) -> str:
        """The table as `quoted_path` takes it."""
        return ".".join('"' + name.replace('"', '""') + '"' for name in (self.schema, self.table))
