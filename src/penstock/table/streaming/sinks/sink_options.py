"""What the options of a session say of tables that are written."""

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
#: the values of each, the default first
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
    """The options, see the Flink document "Configuration", section "Execution Options" of tables."""

    #: whether rows with NULL in a column that is NOT NULL are dropped; else they fail the job
    drops_null: bool = False
    #: what happens to text and bytes of another length: IGNORE, TRIM_PAD or ERROR
    length: str = "IGNORE"
    #: where constraints of types within types are looked at: IGNORE, ROWS or ROWS_AND_COLLECTIONS
    nested: str = "IGNORE"
    #: when the last row of a key is worked out: AUTO, NONE or FORCE
    materialize: str = "AUTO"
    requires_on_conflict: bool = True
    #: when rows go to subtasks by the primary key: AUTO, NONE or FORCE
    shuffle: str = "AUTO"


BY_DEFAULT: Final = SinkOptions()


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Those of a session. Raises `ValidationError` for values that there are not."""
    found = {}
    for key, values in _VALUES.items():
        value = options.get(key, values[0]).upper()
        if value not in values:
            raise ValidationError(f"{key} can be {', '.join(values)}, and not '{options[key]}'")
        found[key] = value
    return SinkOptions(
        found[NOT_NULL] == "DROP",
        found[LENGTH],
        found[NESTED],
        found[MATERIALIZE],
        found[ON_CONFLICT] == "TRUE",
        found[SHUFFLE],
    )
