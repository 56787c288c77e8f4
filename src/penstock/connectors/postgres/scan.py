"""A bounded scan of a table in splits: the splits, and their queries.

**Positions.** A reader resumes where it stopped (G8), so the rows of a split need an order. With a primary key, rows
are in its order, and a position is the key of the last row: the query continues after it. Without one (a view, a table
without a key), rows are ordered by their whole text, and a position is a number of rows. Equal rows are
indistinguishable, so it does not matter which of them comes first.

**One snapshot.** The enumerator exports the snapshot of a transaction that it keeps open, and all splits are read in it
(`pg_export_snapshot`): the rows are from a single moment, regardless of concurrent writes. The transaction stays open
until every reader has been notified of the end, and holds back VACUUM until then. It does not survive the enumerator:
after a failure of the whole job, the remaining rows are read in their state at that time. With a primary key, no row
comes twice, and no row is lost unless it was written in the meantime; without one, there is no such guarantee for a
table that changes. Outside STREAMING mode, the enumerator ends before the parts are read, and each part has a snapshot
of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import Address, connect, driver, naming, quoted
from penstock.connectors.postgres.text_columns import SESSION, literal, parse_batch, texts_of_csv
from penstock.connectors.postgres.unrepresentable import FAIL

FETCH_SIZE: Final = 8_192
#: SQLSTATEs for a split whose snapshot no longer exists.
INVALID_SNAPSHOT: Final = ("22023", "42704", "58P01")


@dataclass(frozen=True, slots=True)
class Partitions:
    """Cuts a table by equal steps of a column. The first part has all lower values and NULL; the last, all higher ones.

    Attributes:
        column: an integer column.
        lower: the lowest value.
        upper: the highest value; rows outside the bounds are read regardless.
        count: the number of parts.
    """

    column: str
    lower: int
    upper: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.lower > self.upper:
            raise ConfigurationError(
                f"a table is cut into at least 1 part between bounds of which the lower is not above the upper one, "
                f"not into {self.count} between {self.lower} and {self.upper}"
            )

    def conditions(self) -> list[str]:
        """Return the SQL condition of each part."""
        name = quoted(self.column)
        width = self.upper - self.lower + 1
        bounds = sorted({self.lower + width * part // self.count for part in range(1, self.count)} - {self.lower})
        if not bounds:
            return [""]
        middle = [f"{name} >= {low} AND {name} < {high}" for low, high in itertools.pairwise(bounds)]
        return [f"({name} < {bounds[0]} OR {name} IS NULL)", *middle, f"{name} >= {bounds[-1]}"]


@dataclass(frozen=True, slots=True)
class ScannedColumn:
    """A column of the output: its name there, an expression over the table, and its Arrow type."""

    name: str
    expression: str
    type: pa.DataType

    @property
    def title(self) -> str:
        """The column's name in the table, for errors."""
        return self.expression.removeprefix("t.").strip('"')


@dataclass(frozen=True, slots=True)
class Scanned:
    """The definition of a scan.

    Attributes:
        address: the database's address.
        table: its path, in the form that `quoted_path` expects.
        columns: the columns of the output.
        conditions: SQL conditions that all rows must satisfy.
        limit: the maximum number of rows per split; None for all.
        partitions: how the table is cut; None for a single part.
        fetch_size: the number of rows fetched at a time.
        unrepresentable: how to read values that a type cannot hold, see `unrepresentable.py`.
    """

    address: Address
    table: str
    columns: tuple[ScannedColumn, ...]
    conditions: tuple[str, ...] = ()
    limit: int | None = None
    partitions: Partitions | None = None
    fetch_size: int = FETCH_SIZE
    unrepresentable: str = FAIL


@dataclass(frozen=True, slots=True)
class ScanSplit:
    """A part of a table from a position on.

    Attributes:
        number: the number of the part.
        condition: the SQL condition for its rows; empty for all rows.
        relation: the quoted path of the table.
        key: the columns of its primary key.
        snapshot: the snapshot to read in; None for that of the reader's own transaction.
        after: the key values of the last row that was read, as text; None at the beginning.
        rows: the number of rows that were read.
    """

    number: int
    condition: str
    relation: str
    key: tuple[str, ...]
    snapshot: str | None = None
    after: tuple[str, ...] | None = None
    rows: int = 0

    def behind(self, keys: Sequence[pa.Array], count: int) -> ScanSplit:
        """Return the split after the next `count` rows; `keys` are the key columns, starting with these rows."""
        after = tuple(column[count - 1].as_py() for column in keys) if self.key else None
        return replace(self, after=after, rows=self.rows + count)


def build_query(scanned: Scanned, split: ScanSplit) -> str:
    """Return the query for a split's rows after its position; the key columns follow all others."""
    expressions = [column.expression for column in scanned.columns]
    where = [condition for condition in (split.condition, *scanned.conditions) if condition]
    # Qualify the names: unqualified ones would refer to the output's columns, which are text.
    order = [f"t.{quoted(name)}" for name in split.key]
    offset = ""
    if split.key:
        expressions += [f"{name}::text" for name in order]
        if split.after is not None:
            values = ", ".join(map(literal, split.after))
            where.append(f"({', '.join(order)}) > ({values})" if len(order) > 1 else f"{order[0]} > {values}")
    else:
        order = [f'(ROW({", ".join(expressions)})::text) COLLATE "C"']
        offset = f" OFFSET {split.rows}"
    # End with a column that is never NULL: COPY writes a single NULL as an empty line, which CSV readers skip.
    text = f"SELECT {', '.join(expressions)}, 1 FROM {split.relation} AS t"
    if where:
        text += " WHERE " + " AND ".join(f"({condition})" for condition in where)
    text += " ORDER BY " + ", ".join(order)
    if scanned.limit is not None:
        text += f" LIMIT {max(0, scanned.limit - split.rows)}"
    return text + offset


@dataclass(frozen=True, slots=True)
class Rows:
    """Fetched rows: their columns, and their key columns as text."""

    columns: pa.RecordBatch
    keys: tuple[pa.Array, ...]


class Fetch:
    """Fetches the rows of one split; `rows` runs in a thread, and `interrupt` stops it."""

    def __init__(self, scanned: Scanned, split: ScanSplit) -> None:
        self._scanned = scanned
        self._split = split
        self._connection: Any = None
        self._is_stopped = False
        #: whether the split's snapshot no longer existed
        self.lost_snapshot = False

    def rows(self) -> Iterator[Rows]:
        """Yield the rows after the split's position."""
        with connect(self._scanned.address) as connection:
            self._connection = connection
            connection.execute(SESSION)
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            if self._is_stopped:
                return
            self._begin(connection)
            yield from self._copied(connection)
            connection.execute("COMMIT")

    def _begin(self, connection: Any) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if self._split.snapshot is None:
            return
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT {literal(self._split.snapshot)}")
        except driver().Error as error:
            if error.sqlstate not in INVALID_SNAPSHOT:
                raise
            self.lost_snapshot = True
            connection.execute("ROLLBACK")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _copied(self, connection: Any) -> Iterator[Rows]:
        scanned = self._scanned
        text = build_query(scanned, self._split)
        lines: list[bytes] = []
        with (
            naming(f"cannot read {self._split.relation}"),
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as copy,
        ):
            for line in copy:
                lines.append(bytes(line))
                if len(lines) >= scanned.fetch_size:
                    yield self._made(lines)
                    lines = []
        if lines:
            yield self._made(lines)

    def _made(self, lines: list[bytes]) -> Rows:
        columns = self._scanned.columns
        texts = texts_of_csv(b"".join(lines), len(columns) + len(self._split.key) + 1)
        batch = parse_batch(
            texts[: len(columns)],
            [column.type for column in columns],
            [column.name for column in columns],
            self._scanned.unrepresentable,
            [column.title for column in columns],
        )
        return Rows(batch, tuple(texts[len(columns) : -1]))

    def interrupt(self) -> None:
        """Stop reading and cancel the running query."""
        self._is_stopped = True
        connection = self._connection
        if connection is not None and not connection.closed:
            connection.cancel_safe(timeout=5)
