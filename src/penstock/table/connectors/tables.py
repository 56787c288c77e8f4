"""What plans know of tables: how one is read, and how one is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.connector import Sink
from penstock.table.plan.changes import INSERTS, Changes

#: of tables whose watermarks are not made where they are read
NO_WATERMARKS: Final = WatermarkStrategy.no_watermarks()


def column_names(count: int) -> list[str]:
    """The names of columns in streams: their places."""
    return [f"c{place}" for place in range(count)]


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Files that hold a table, for who can read them without the table's source, such as Spark.

    Attributes:
        path: the directory, or the file.
        format: what the option `format` says.
        options: those of the format, without its prefix.
        partition_keys: the columns whose values are in the names of directories.
        partitions: the only directories to read, relative to the path; None for all.
        is_plain: whether the files hold the table's columns alone, under their names, and all of them are wanted.
    """

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    partition_keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class TableReader:
    """How a table is read: a source of columns, in the order of its stored ones and under the names c0, c1 and on.

    `source` is a `Source`. `frame` makes a Spark data frame of the same columns, whatever their names, of a Spark
    session; batches then read that, and need no source.
    """

    source: Any
    changes: Changes = INSERTS
    #: whether updates come with the row as it was before
    has_before: bool = False
    #: the places of the columns of its primary key
    key: tuple[int, ...] = ()
    #: whether an insert may replace a row of its key, and a deletion have the key alone
    is_upsert: bool = False
    #: whether a deletion of a table with `is_upsert` has all columns all the same
    has_full_deletes: bool = False
    #: where its rows are, if they are in files
    location: TableLocation | None = field(default=None)
    frame: Callable[[Any], Any] | None = None
    #: the name of the frame's table in Spark's session, if it is one
    spark_table: str | None = None
    #: how watermarks are made where the table is read, see `WatermarkPushDown`
    strategy: WatermarkStrategy = NO_WATERMARKS


@dataclass(frozen=True, slots=True)
class TableWriter:
    """How a table is written: a sink, and which changes it takes.

    The sink is handed (kind, held values) for each row, with `takes_text` the text of the row, or with `takes_columns`
    columns as a `TableReader` gives them, see `SinkWriter.write_columns` and `write_changes`. One that takes updates
    without the rows as they were writes by the table's primary key, in the place of rows that were there.
    """

    sink: Sink[Any]
    accepts: Changes = INSERTS
    #: whether it needs the row as it was before an update
    wants_before: bool = True
    #: whether it takes updates without the row as it was, too, where its primary key is not the query's
    takes_either: bool = False
    takes_text: bool = False
    takes_columns: bool = False
    #: whether a deletion may have the primary key alone, and NULL in the other columns
    deletes_by_key: bool = False
    #: whether it is for inserts alone where the query only inserts
    follows_query: bool = False
