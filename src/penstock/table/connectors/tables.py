"""What plans know of tables: how one is read, and how one is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.connector import Sink, Source
from penstock.table.plan.changes import INSERTS, Changes


@dataclass(frozen=True, slots=True)
class TableReader:
    """How a table is read: a source of columns, in the order of its stored ones and under the names c0, c1 and on.

    `frame`: makes a Spark data frame of the same columns, whatever their names, of a Spark session; batches then read
    that, and need no source.
    """

    source: Source[Any, Any] | None
    changes: Changes = INSERTS
    #: whether updates come with the row as it was before
    has_before: bool = False
    #: the places of the columns of its primary key
    key: tuple[int, ...] = ()
    #: whether an insert may replace a row of its key, and a deletion have the key alone
    is_upsert: bool = False
    frame: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class TableWriter:
    """How a table is written: a sink, and which changes it takes.

    The sink is handed (kind, held values) for each row, or with `takes_text` the text of the row.
    """

    sink: Sink[Any]
    accepts: Changes = INSERTS
    #: whether it needs the row as it was before an update
    wants_before: bool = True
    takes_text: bool = False
