"""How plans read and write tables: scans, their optional abilities, and push-downs.

An ability goes beyond a full read, and the planner can use it. A `TableScan` is a value that represents reading a
table; each ability returns a modified copy, so the planner can try one and keep the previous scan. Column indices refer
to the columns that the scan currently returns. The result goes into `Scan.source`, with a matching schema.

The methods of `PushDown` are requests of the planner to table scans. Each returns None if the table lacks the ability.

`last_of_each` reduces the buffered changes of a sink to the last one of each key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.column_data import ColumnData
from penstock.runtime.connector import Sink
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import LENGTH_MAX, DataType, RowType, VarCharType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.casts import cast_kernel
from penstock.sql.functions.definition import Session
from penstock.sql.logical.explain import expression_text
from penstock.sql.logical.nodes import INSERTS, Changes, PlanColumn, RowSchema, Scan
from penstock.sql.typed import Field, Typed, UserCall
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys

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


#: the values of the partition columns of one partition, by name; None for NULL
Partition = Mapping[str, str | None]
#: a column index, then the field index in each nested row; NULL if an enclosing row is. A lone index is the column
Path = tuple[int, ...]


def leaf_type(kind: DataType, fields: Sequence[int]) -> DataType:
    """Return the type of a nested field; it is nullable if an enclosing row is."""
    is_nullable = kind.is_nullable
    for index in fields:
        kind = tuple(kind.children())[index]
        is_nullable = is_nullable or kind.is_nullable
    return kind.nullable() if is_nullable else kind


class TableScan(ABC):
    """A table to be read. Implementations are frozen, and equal if they read the same rows."""

    @abstractmethod
    def reader(self) -> TableReader:
        """Return the reader of the table."""

    def check(self) -> None:  # noqa: B027 - most tables are checked when they are read
        """Check the table itself while the statement is planned, once all columns to be read are known.

        Raises:
            PenstockError: if the table cannot be read as declared.
        """


@dataclass(frozen=True, slots=True)
class WholeScan(TableScan):
    """A scan without abilities."""

    table: TableReader

    def reader(self) -> TableReader:
        """Return the reader passed to the constructor."""
        return self.table


class ProjectionPushDown(ABC):
    """Reads only some columns."""

    @abstractmethod
    def with_columns(self, columns: Sequence[int]) -> TableScan:
        """Return a scan of these columns, in this order."""


class Filtered(NamedTuple):
    """The result of pushing conditions into a scan.

    Attributes:
        scan: skips rows that fail the conditions.
        remaining: the conditions that the query must still evaluate.
        used: the conditions in `remaining` that the scan uses nevertheless, for EXPLAIN.
    """

    scan: TableScan
    remaining: tuple[Typed, ...]
    used: tuple[Typed, ...] = ()


class NestedPushDown(ABC):
    """Reads some fields of row-typed columns."""

    @abstractmethod
    def with_leaves(self, paths: Sequence[Path]) -> TableScan:
        """Return a scan with a column for each path, in this order."""


class FilterPushDown(ABC):
    """Skips rows that a query does not need."""

    @abstractmethod
    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """Return a scan that skips rows, and the conditions that it does not, or not fully, apply."""


class LimitPushDown(ABC):
    """Stops early if only some rows are needed."""

    @abstractmethod
    def with_limit(self, limit: int) -> TableScan:
        """Return a scan of at least `limit` rows, if there are as many. The limit stays in the plan."""


class PartitionPushDown(ABC):
    """Reads only some partitions. Conditions on partition columns stay in the query's plan."""

    @abstractmethod
    def partitions(self) -> list[Partition] | None:
        """Return the existing partitions; None if they are unknown."""

    @abstractmethod
    def with_partitions(self, partitions: Sequence[Partition]) -> TableScan:
        """Return a scan of these partitions."""


class WatermarkPushDown(ABC):
    """Generates watermarks in the source, separately for each split that its readers open by name.

    A slow split holds the watermark back, and a split that is far ahead does not make rows of others late. See
    `SourceReaderContext.open_split`, and `SplitColumnBatch` for the rows of a split.
    """

    @abstractmethod
    def with_watermarks(self, strategy: WatermarkStrategy) -> TableScan:
        """Return a scan whose `TableReader` has this strategy."""


class PushedFilter(NamedTuple):
    """A scan that leaves out rows, and the conditions that remain to be evaluated."""

    scan: Scan
    remaining: tuple[Typed, ...]


class PushDown:
    """Pushes operations into table scans. `scan` returns the scan of a node; without it nothing is pushed down."""

    def __init__(self, scan: Callable[[Scan], TableScan] | None = None) -> None:
        self._scan = scan

    def narrowed(self, node: Scan, columns: Sequence[int]) -> Scan | None:
        """Return the scan with only these columns, in this order."""
        table_scan = self._found(node)
        if not isinstance(table_scan, ProjectionPushDown):
            return None
        schema = RowSchema(tuple(node.schema[column] for column in columns))
        return _with_columns(
            node,
            schema,
            {column: position for position, column in enumerate(columns)},
            table_scan.with_columns(columns),
        )

    def leaves(self, node: Scan, paths: Sequence[Path]) -> Scan | None:
        """Return the scan with one column per path. Key columns and METADATA columns are paths of their own."""
        table_scan = self._found(node)
        if not isinstance(table_scan, NestedPushDown):
            return None
        source = table_scan.with_leaves(paths)
        columns = tuple(leaf(node.schema, path) for path in paths)
        positions = {path[0]: position for position, path in enumerate(paths) if len(path) == 1}
        return _with_columns(node, RowSchema(columns), positions, source)

    def limited(self, node: Scan, count: int) -> Scan | None:
        """Return the scan limited to `count` rows."""
        table_scan = self._found(node)
        if not isinstance(table_scan, LimitPushDown) or table_scan.reader().changes != INSERTS:
            return None
        return replace(node, source=table_scan.with_limit(count), pushed=(*node.pushed, f"limit=[{count}]"))

    def timed(self, node: Scan, strategy: WatermarkStrategy) -> TableReader | None:
        """Return the reader that generates watermarks at the source."""
        table_scan = self._found(node)
        if not isinstance(table_scan, WatermarkPushDown):
            return None
        return table_scan.with_watermarks(strategy).reader()

    def filtered(self, node: Scan, conditions: Sequence[Typed], session: Session) -> PushedFilter | None:
        """Return the scan without rows that fail the conditions. Nothing is pushed into the scan of a changelog."""
        table_scan = self._found(node)
        if not isinstance(table_scan, FilterPushDown | PartitionPushDown) or table_scan.reader().changes != INSERTS:
            return None
        scan: TableScan = table_scan
        remaining, used = tuple(conditions), ()
        if isinstance(scan, FilterPushDown):
            scan, remaining, used = scan.with_conditions(remaining)
        taken = tuple(_text(condition, node) for condition in conditions if condition not in remaining)
        filters = tuple(
            _text(condition, node) for condition in conditions if condition not in remaining or condition in used
        )
        pushed = (f"filter=[{' AND '.join(filters)}]",) if filters else ()
        if isinstance(scan, PartitionPushDown):
            chosen = _chosen_partitions(node, scan, remaining, session)
            if chosen is not None:
                scan, description = chosen
                pushed = (*pushed, f"partitions=[{description}]")
        if not pushed:
            return None
        filtered = replace(node, source=scan, taken=(*node.taken, *taken), pushed=(*node.pushed, *pushed))
        return PushedFilter(filtered, remaining)

    def _found(self, node: Scan) -> TableScan | None:
        return None if self._scan is None else self._scan(node)


#: for tables that are always read whole
NO_PUSH_DOWN = PushDown()


class RecordedPushDown(PushDown):
    """A push-down that knows how each scan was made; see `penstock.sql.logical.stored_plans.Requests`."""

    def __init__(self, tables: PushDown, session: Session) -> None:
        super().__init__(tables._scan)
        self._session = session
        #: by the id of a scan's source: the source, the scan before, and the request
        self._made: dict[int, tuple[object, Scan, tuple[str, tuple[Any, ...]]]] = {}

    def narrowed(self, node: Scan, columns: Sequence[int]) -> Scan | None:
        """See `PushDown`."""
        return self._recorded(super().narrowed(node, columns), node, "columns", tuple(columns))

    def leaves(self, node: Scan, paths: Sequence[Path]) -> Scan | None:
        """See `PushDown`."""
        return self._recorded(super().leaves(node, paths), node, "leaves", tuple(map(tuple, paths)))

    def limited(self, node: Scan, count: int) -> Scan | None:
        """See `PushDown`."""
        return self._recorded(super().limited(node, count), node, "limit", (count,))

    def filtered(self, node: Scan, conditions: Sequence[Typed], session: Session) -> PushedFilter | None:
        """See `PushDown`."""
        new_scan = super().filtered(node, conditions, session)
        if new_scan is not None:
            self._recorded(new_scan.scan, node, "conditions", (tuple(conditions), new_scan.remaining))
        return new_scan

    def _recorded(self, scan: Scan | None, before: Scan, name: str, arguments: tuple[Any, ...]) -> Scan | None:
        if scan is not None:
            self._made[id(scan.source)] = (scan.source, before, (name, arguments))
        return scan

    def of(self, scan: Scan) -> tuple[Scan, list[tuple[str, tuple[Any, ...]]]]:
        """Return the scan of the whole table, and the requests that made this scan of it, in order."""
        requests = []
        while id(scan.source) in self._made:
            _, scan, request = self._made[id(scan.source)]
            requests.append(request)
        return scan, requests[::-1]

    def repeat(self, scan: Scan, requests: Sequence[tuple[str, tuple[Any, ...]]]) -> Scan:
        """Make requests again. Raises `ValidationError` if the table does not take them as before."""
        for name, arguments in requests:
            again = self._repeated(scan, name, arguments)
            if again is None:
                raise ValidationError(
                    f"table {'.'.join(scan.path)} does not take over what it took when the plan was compiled ({name}): "
                    "compile the statement again"
                )
            scan = again
        return scan

    def _repeated(self, scan: Scan, name: str, arguments: tuple[Any, ...]) -> Scan | None:
        match name:
            case "columns":
                return self.narrowed(scan, arguments)
            case "leaves":
                return self.leaves(scan, arguments)
            case "limit":
                return self.limited(scan, *arguments)
        conditions, remaining = arguments
        new_scan = self.filtered(scan, conditions, self._session)
        return new_scan.scan if new_scan is not None and new_scan.remaining == remaining else None


def _with_columns(node: Scan, schema: RowSchema, positions: dict[int, int], source: TableScan) -> Scan:
    """Return a scan with other columns. `positions`: the new indexes of the columns that remain."""
    return replace(
        node,
        schema=schema,
        key=tuple(positions[column] for column in node.key),
        metadata=tuple((positions[column], key) for column, key in node.metadata if column in positions),
        source=source,
    )


def leaf(schema: RowSchema, path: Path) -> PlanColumn:
    """Return the column at a path."""
    if len(path) == 1:
        return schema[path[0]]
    names = [schema[path[0]].name]
    kind = schema[path[0]].type
    for index in path[1:]:
        assert isinstance(kind, RowType)
        names.append(kind.field_names()[index])
        kind = kind.field_types()[index]
    return PlanColumn(".".join(names), leaf_type(schema[path[0]].type, path[1:]))


def _text(condition: Typed, node: Scan) -> str:
    return expression_text(condition, node.schema.names)


def _chosen_partitions(
    node: Scan, scan: PartitionPushDown, conditions: Sequence[Typed], session: Session
) -> tuple[TableScan, str] | None:
    """Return a scan of the partitions that may satisfy the conditions, and these as text; None if none is excluded."""
    keys = {index: column for index, column in enumerate(node.schema) if column.name in node.partition_keys}
    key_conditions = [condition for condition in conditions if _is_over(condition, set(keys))]
    known = scan.partitions() if key_conditions else None
    if not known:
        return None
    arrays = [pa.nulls(len(known)) for _ in node.schema]
    unread = np.zeros(len(known), np.bool_)
    for key_index, column in keys.items():
        texts = pa.array([partition[column.name] for partition in known], pa.string())
        arrays[key_index] = cast_kernel(VarCharType(LENGTH_MAX), column.type, session, True)(texts)
        unread |= pc.and_(texts.is_valid(), arrays[key_index].is_null()).to_numpy(zero_copy_only=False)
    try:
        answers = Evaluator(key_conditions, session)(Columns(arrays, len(known)))
    except TableRuntimeError:
        return None
    mask = np.ones(len(known), np.bool_)
    for answer in answers:
        mask &= pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    # The connector may accept a value that the cast cannot read.
    chosen = [partition for partition, is_wanted in zip(known, (mask | unread).tolist(), strict=True) if is_wanted]
    if len(chosen) == len(known):
        return None
    description = ", ".join(
        "{" + ", ".join(f"{key}={value}" for key, value in partition.items()) + "}" for partition in chosen
    )
    return scan.with_partitions(chosen), description


def _is_over(condition: Typed, indices: set[int]) -> bool:
    """Return whether a condition reads only columns at these indexes and calls no user-defined function."""
    parts = list(condition.walk())
    read = {part.index for part in parts if isinstance(part, Field)}
    return bool(read) and read <= indices and not any(isinstance(part, UserCall) for part in parts)


#: Columns, and one byte per row for its kind; None if all rows are inserts.
Part = tuple[ColumnData, bytes | None]
_INSERT: Final = 0


def concatenate_kinds(parts: Sequence[Part]) -> Any:
    """Return the kinds of all rows as an array."""
    return np.concatenate(
        [
            np.full(len(data), _INSERT, np.uint8) if kinds is None else np.frombuffer(kinds, np.uint8)
            for data, kinds in parts
        ]
    )


def last_of_each(keys: Sequence[pa.Array]) -> Any:
    """Return the positions of the last row of each key, in ascending order."""
    codes, distinct = distinct_keys(list(map(canonical_column, keys)))
    last = np.zeros(len(distinct), np.int64)
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def whole_column(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as a single array."""
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


class PartitionTimeExtractor(ABC):
    """Makes the time of a partition of the values of its columns.

    Examples:
        >>> from datetime import datetime
        >>> from penstock.table import PartitionTimeExtractor
        >>> class Years(PartitionTimeExtractor):
        ...     def extract(self, keys, values):
        ...         return datetime(int(values[0]), 1, 1)
        >>> Years().extract(["year"], ["2020"])
        datetime.datetime(2020, 1, 1, 0, 0)
    """

    @abstractmethod
    def extract(self, keys: Sequence[str], values: Sequence[str]) -> datetime:
        """Return the time, without a zone. `values` are the texts of the partition columns `keys`."""
