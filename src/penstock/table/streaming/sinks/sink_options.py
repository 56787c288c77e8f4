"""The options of a session for writing to tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.table.data.errors import ValidationError

NOT_NULL: Final = "table.exec.sink.not-null-enforcer"
LENGTH: Final = "table.exec.sink.type-length-enforcer"
NESTED: Final = "table.exec.sink.nested-constraint-enforcer"
MATERIALIZE: Final = "table.exec.sink.upsert-materialize"
ON_CONFLICT: Final = "table.exec.sink.require-on-conflict"
SHUFFLE: Final = "table.exec.sink.keyed-shuffle"
#: the values of each option, the default first
_VALUES: Final = {
    NOT_NULL: ("ERROR", "DROP"),
    LENGTH: ("IGNORE", "TRIM_PAD", "ERROR"),
    NESTED: ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS"),
    MATERIALIZE: ("AUTO", "NONE", "FORCE"),
    ON_CONFLICT: ("TRUE", "FALSE"),
    SHUFFLE: ("AUTO", "NONE", "FORCE"),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options. See Flink's document "Configuration", section "Execution Options" of tables."""

    #: whether rows with NULL in a NOT NULL column are dropped; otherwise they fail the job
    drops_null: bool = False
    #: how strings and bytes of another length are handled: IGNORE, TRIM_PAD or ERROR
    length: str = "IGNORE"
    #: where constraints of nested types are enforced: IGNORE, ROWS or ROWS_AND_COLLECTIONS
    nested: str = "IGNORE"
    #: when the last row of a key is determined: AUTO, NONE or FORCE
    materialize: str = "AUTO"
    requires_on_conflict: bool = True
    #: when rows are shuffled by the primary key: AUTO, NONE or FORCE
    shuffle: str = "AUTO"


BY_DEFAULT: Final = SinkOptions()


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a session. Raises `ValidationError` for unknown values."""
    settings = {}
    for key, values in _VALUES.items():
        value = options.get(key, values[0]).upper()
        if value not in values:
            raise ValidationError(f"{key} can be {', '.join(values)}, and not '{options[key]}'")
        settings[key] = value
    return SinkOptions(
        settings[NOT_NULL] == "DROP",
        settings[LENGTH],
        settings[NESTED],
        settings[MATERIALIZE],
        settings[ON_CONFLICT] == "TRUE",
        settings[SHUFFLE],
    )
