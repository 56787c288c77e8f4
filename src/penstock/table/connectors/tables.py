"""How plans read and write tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.connector import Sink
from penstock.table.plan.changes import INSERTS, Changes

#: for tables whose watermarks are not generated at the source
NO_WATERMARKS: Final = WatermarkStrategy.no_watermarks()


def column_names(count: int) -> list[str]:
    """Return the names of columns in streams, which are their positions."""
    return [f"c{index}" for index in range(count)]


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Files that hold a table, for engines such as Spark that can read them without the table's source.

    Attributes:
        path: the directory or the file.
        format: the value of the option `format`.
        options: the options of the format, without its prefix.
        partition_keys: the columns whose values are in directory names.
        partitions: the only directories to read, relative to the path; None for all.
        is_plain: whether the files hold exactly the table's columns, under their names, and all are requested.
    """

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class TableReader:
    """How to read a table: a source of its stored columns, in order, named c0, c1 and so on.

    `source` is a `Source`. `frame` creates a Spark data frame of the same columns, under any names, from a Spark
    session; batch jobs then read that and need no source.
    """

    source: Any
    changes: Changes = INSERTS
    #: whether updates come with the previous row (UPDATE_BEFORE)
    has_before: bool = False
    #: the indexes of the primary key columns
    key: tuple[int, ...] = ()
    #: whether an insert may replace the row of its key, and a delete may have only the key
    is_upsert: bool = False
    #: whether deletes of a table with `is_upsert` have all columns nevertheless
    has_full_deletes: bool = False
    #: the location of its rows, if they are in files
    location: TableLocation | None = field(default=None)
    frame: Callable[[Any], Any] | None = None
    #: the name of the frame's table in the Spark session, if it is a table
    spark_table: str | None = None
    #: how watermarks are generated at the source, see `WatermarkPushDown`
    strategy: WatermarkStrategy = NO_WATERMARKS


@dataclass(frozen=True, slots=True)
class TableWriter:
    """How to write a table: a sink, and the changes that it accepts.

    The sink receives (kind, internal values) for each row; with `takes_text`, the text of the row; with
    `takes_columns`, columns like those from a `TableReader`, see `SinkWriter.write_columns` and `write_changes`. A sink
    that accepts updates without the previous row upserts by the table's primary key.
    """

    sink: Sink[Any]
    accepts: Changes = INSERTS
    #: whether it needs the previous row of an update (UPDATE_BEFORE)
    wants_before: bool = True
    #: whether it also accepts updates without the previous row if its primary key is not the query's
    takes_either: bool = False
    takes_text: bool = False
    takes_columns: bool = False
    #: whether a delete may have only the primary key, with NULL in the other columns
    deletes_by_key: bool = False
    #: whether it is append-only for an append-only query
    follows_query: bool = False
