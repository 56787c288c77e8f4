"""A table that is read to its end, in splits: what a split is, and its query.

**Positions.** A reader begins again where it was (G8), so the rows of a split have an order. With a primary key that is
the order, and a position is the key of the last row: the query goes on behind it. Without one (a view, a table without
a key) the rows are in the order of their whole text, and a position is a number of rows. Equal rows cannot be told
apart, so it does not matter which of them comes first.

**One snapshot.** The enumerator exports the snapshot of a transaction that it holds open, and all splits are read in
it (`pg_export_snapshot`): the rows are those of one moment, whatever is written meanwhile. It is held until every
reader has been told of the end, and holds back VACUUM so long. It does not survive the enumerator: after a failure of
the whole job, what is left is read as it is then. With a primary key no row comes twice and none is lost that was not
written meanwhile; without one, nothing of that holds for a table that changes. Outside of streaming the enumerator has
ended before the parts are read, and each part has a snapshot of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import Address, connect, driver, naming, quoted
from penstock.connectors.postgres.text_columns import SESSION, batch_of, literal, texts_of_csv
from penstock.connectors.postgres.unrepresentable import FAIL

FETCH_SIZE: Final = 8_192
#: Of a split whose snapshot is gone.
INVALID_SNAPSHOT: Final = ("22023", "42704", "58P01")


@dataclass(frozen=True, slots=True)
class Partitions:
    """How a table is cut: by equal steps of a column. The first part has all below, and NULL; the last has all above.

    Attributes:
        column: of whole numbers.
        lower: the least value, and
        upper: the greatest; what is beyond is read all the same.
        count: how many parts.
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
        """One for each part."""
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
        """Its name in the table, for errors."""
        return self.expression.removeprefix("t.").strip('"')


@dataclass(frozen=True, slots=True)
class Scanned:
    """What is read.

    Attributes:
        address: the database.
        table: its path, which `quoted_path` takes.
        columns: of the output.
        conditions: only rows for which all are true.
        limit: how many rows of each split are enough; None for all.
        partitions: how the table is cut; None for not at all.
        fetch_size: how many rows are fetched at a time.
        unrepresentable: what to do with values that a type cannot hold, see `unrepresentable.py`.
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
        number: which part.
        condition: its rows; empty for all.
        relation: the table, in quotes.
        key: the columns of its primary key.
        snapshot: in which it is read; None for that of the reader's own transaction.
        after: the values of the key of the last row that was read, as texts; None at the beginning.
        rows: how many have been read.
    """

    number: int
    condition: str
    relation: str
    key: tuple[str, ...]
    snapshot: str | None = None
    after: tuple[str, ...] | None = None
    rows: int = 0

    def behind(self, keys: Sequence[pa.Array], count: int) -> ScanSplit:
        """The split after so many more rows; `keys` are those of the key from the first of them on."""
        after = tuple(one[count - 1].as_py() for one in keys) if self.key else None
        return replace(self, after=after, rows=self.rows + count)


def query_of(scanned: Scanned, split: ScanSplit) -> str:
    """The rows of a split behind its position, with the columns of its key behind all others."""
    expressions = [one.expression for one in scanned.columns]
    where = [one for one in (split.condition, *scanned.conditions) if one]
    # The names alone would be those of the output, which are texts.
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
    # The last column is never NULL, because a line of one NULL would be no line at all.
    text = f"SELECT {', '.join(expressions)}, 1 FROM {split.relation} AS t"
    if where:
        text += " WHERE " + " AND ".join(f"({one})" for one in where)
    text += " ORDER BY " + ", ".join(order)
    if scanned.limit is not None:
        text += f" LIMIT {max(0, scanned.limit - split.rows)}"
    return text + offset


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that were fetched: their columns, and those of their keys as texts."""

    columns: pa.RecordBatch
    keys: tuple[pa.Array, ...]


class Fetch:
    """Fetches the rows of one split; `rows` runs in a thread, which `interrupt` stops."""

    def __init__(self, scanned: Scanned, split: ScanSplit) -> None:
        self._scanned = scanned
        self._split = split
        self._connection: Any = None
        self._is_stopped = False
        #: whether the snapshot of the split was gone
        self.lost_snapshot = False

    def rows(self) -> Iterator[Rows]:
        """The rows behind the split's position."""
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
        text = query_of(scanned, self._split)
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
        made = batch_of(
            texts[: len(columns)],
            [one.type for one in columns],
            [one.name for one in columns],
            self._scanned.unrepresentable,
            [one.title for one in columns],
        )
        return Rows(made, tuple(texts[len(columns) : -1]))

    def interrupt(self) -> None:
        """Make a query that runs end."""
        self._is_stopped = True
        connection = self._connection
        if connection is not None and not connection.closed:
            connection.cancel_safe(timeout=5)
