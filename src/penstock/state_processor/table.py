"""`SavepointTable`, a savepoint's state as a table that is read on demand; its Arrow columns; and its Spark jobs (H5).

**Columns.** A column's type is inferred from its Python values, or given (`arrow_type`). Simple types become native
columns: int (64 bits), float, str, bool, bytes, datetime (microseconds), date, timedelta. Tuples, `Row`s and
dataclasses of these become structs; lists and dicts of these become lists and maps. A column with anything else holds
pickled bytes.

**Reading.** Nothing is read until rows or the schema are requested. `to_spark` reads in Spark tasks, one part each:
only the schema is inferred here, from the first rows of the state, unless its types are given.

**Spark jobs.** Tasks read, copy and write files, and write keyed state from a data frame. All calls are methods of the
given session and data frame, so a classic session and Spark Connect both work. A task that Spark retries writes its
files again. Files are named by their content, and files that no metadata names are deleted when the savepoint is
complete.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pickle
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.base.typeinfo import TupleTypeInfo, TypeInformation
from penstock.base.types import Row
from penstock.codecs import arrow_columns as arrow_types
from penstock.codecs import cloud
from penstock.codecs.cloud import as_main, pack_script
from penstock.codecs.pickling import dumps
from penstock.drivers.spark.handle import SparkHandle, short_reason
from penstock.state.errors import StateError
from penstock.state_processor.draft import Entry, Target, keyed_rows
from penstock.state_processor.layouts import NO_NAMESPACE, Layout, Part
from penstock.state_processor.rows import NOTHING, Shape, arrow_blocks
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import StateFile

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession


#: Use this as a column's type to keep its values as pickled bytes.
PICKLED: Final = "pickled"

_TIMESTAMP: Final = pa.timestamp("us")
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_SIMPLE: Final[dict[type, Any]] = {
    type(None): pa.null(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.timedelta: pa.duration("us"),
}
_LONG_MAX: Final = 2**63 - 1
#: Stands for a map of unknown types: Arrow has no type for an empty map.
_EMPTY_MAP: Final = pa.struct([])


class _NotSimpleError(Exception):
    """Raised if a value, or a mix of values, has no Arrow type here."""


def arrow_type(column_type: Any) -> Any:
    """Return the Arrow type of a Python type, a `TypeInformation` or an Arrow type; None for `PICKLED`.

    Raises:
        ConfigurationError: if Arrow has none.
    """
    if isinstance(column_type, str) and column_type == PICKLED:
        return None
    if column_type is datetime.timedelta:
        return _SIMPLE[column_type]
    if isinstance(column_type, TupleTypeInfo):
        return pa.struct([(f"f{i}", arrow_type(t)) for i, t in enumerate(column_type.get_field_types())])
    if isinstance(column_type, type) and dataclasses.is_dataclass(column_type):
        hints = _hints(column_type)
        return pa.struct([(f.name, arrow_type(hints.get(f.name))) for f in dataclasses.fields(column_type)])
    return arrow_types.arrow_type(column_type)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the annotated types of a dataclass's fields.

    `int | None` becomes int, because every column is nullable.
    """
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - annotations are code, and need not mean anything here
        return {}
    for name, hint in hints.items():
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        if len(choices) == 1 and type(None) in typing.get_args(hint):
            hints[name] = choices[0]
    return hints


@functools.cache
def _annotated_types(kind: type) -> dict[str, Any]:
    """Return the Arrow types of the dataclass fields whose annotations are simple."""
    return {name: _SIMPLE[hint] for name, hint in _hints(kind).items() if hint in _SIMPLE}


def declared_type(type_info: TypeInformation | None) -> Any:
    """Return the Arrow type of a state's declared type; None if it declares none or Arrow has none."""
    if type_info is None:
        return None
    try:
        return arrow_type(type_info)
    except ConfigurationError:
        return None


def infer_type(values: Iterable[Any]) -> Any:
    """Infer the Arrow type that fits all these values; None if they must be pickled."""
    common_type = pa.null()
    try:
        for value in values:
            common_type = _common(common_type, _infer_type(value))
    except _NotSimpleError:
        return None
    return common_type if _is_whole(common_type) else None


def _infer_type(value: Any) -> Any:
    kind = type(value)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        if kind is int and not -_LONG_MAX <= value <= _LONG_MAX:
            raise _NotSimpleError
        return simple
    if kind is datetime.datetime:
        return _TIMESTAMP if value.tzinfo is None else _INSTANT
    if kind is list:
        return pa.list_(_all(value))
    if kind is dict and not value:
        return _EMPTY_MAP
    if kind is dict:
        return pa.map_(_all(value), _all(value.values()))
    names = field_names(value)
    if not names or len(set(names)) != len(names):
        raise _NotSimpleError
    annotated = _annotated_types(kind) if dataclasses.is_dataclass(kind) else {}
    fields = [
        (name, annotated.get(name, pa.null()) if field is None else _infer_type(field))
        for name, field in zip(names, _fields(value, names), strict=True)
    ]
    return pa.struct(fields)


def _all(values: Iterable[Any]) -> Any:
    common_type = pa.null()
    for value in values:
        common_type = _common(common_type, _infer_type(value))
    return common_type


def _common(left: Any, right: Any) -> Any:
    """Return the type that can hold values of both types."""
    types = pa.types
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if _EMPTY_MAP in (left, right) and (types.is_map(left) or types.is_map(right)):
        return right if left == _EMPTY_MAP else left
    if {left, right} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if types.is_list(left) and types.is_list(right):
        return pa.list_(_common(left.value_type, right.value_type))
    if types.is_map(left) and types.is_map(right):
        return pa.map_(_common(left.key_type, right.key_type), _common(left.item_type, right.item_type))
    if types.is_struct(left) and types.is_struct(right) and [f.name for f in left] == [f.name for f in right]:
        return pa.struct([(a.name, _common(a.type, b.type)) for a, b in zip(left, right, strict=True)])
    raise _NotSimpleError


def _is_whole(kind: Any) -> bool:
    """Return whether the type is fully known."""
    if pa.types.is_struct(kind):
        return kind != _EMPTY_MAP and all(_is_whole(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _is_whole(kind.key_type) and _is_whole(kind.item_type)
    if pa.types.is_list(kind):
        return _is_whole(kind.value_type)
    return not pa.types.is_null(kind)


def field_names(value: Any) -> list[str]:
    """Return the field names of a tuple, named tuple, Row or dataclass; empty for anything else."""
    if isinstance(value, Row):
        named = value._fields
        return [f"f{i}" for i in range(len(value))] if named is None else [str(name) for name in named]
    if type(value) is tuple:
        return [f"f{i}" for i in range(len(value))]
    if isinstance(value, tuple):
        return list(getattr(value, "_fields", ()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value)]
    return []


def _fields(value: Any, names: Sequence[str]) -> Sequence[Any]:
    if isinstance(value, tuple | Row):
        fields = tuple(value)
        if len(fields) != len(names):
            raise TypeError(f"{value!r} has {len(fields)} fields, not the {len(names)} of {', '.join(names)}")
        return fields
    if isinstance(value, dict):
        return [value.get(name) for name in names]
    return [getattr(value, name) for name in names]


def to_array(values: Sequence[Any], kind: Any, what: str) -> Any:
    """Return an Arrow array of the values; a `kind` of None pickles them. `what` names the column in errors.

    Raises:
        StateError: if a value does not fit.
    """
    if kind is None:
        return pa.array(list(map(dumps, values)), pa.binary())
    try:
        return _array(values, kind)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError) as error:
        raise StateError(
            f"a value of {what} does not fit the column's type {kind}: {error}; name the type of the column when you "
            f"read it, or {PICKLED!r} for pickled bytes"
        ) from error


def _array(values: Sequence[Any], kind: Any) -> Any:
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        nothing = (None,) * len(names)
        rows = [nothing if value is None else _fields(value, names) for value in values]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        children = [_array(column, field.type) for column, field in zip(columns, kind, strict=True)]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        flat = list(chain.from_iterable(value for value in values if value is not None))
        return pa.ListArray.from_arrays(_offsets(values), _array(flat, kind.value_type), type=kind)
    if pa.types.is_map(kind):
        keys = list(chain.from_iterable(value for value in values if value is not None))
        items = list(chain.from_iterable(value.values() for value in values if value is not None))
        return pa.MapArray.from_arrays(_offsets(values), _array(keys, kind.key_type), _array(items, kind.item_type))
    return pa.array(values, kind)


def _offsets(values: Sequence[Any]) -> Any:
    """Return the offsets of each value's elements among all elements; null for a value of None."""
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    begins = [None if value is None else begin for value, begin in zip(values, ends[:-1], strict=True)]
    return pa.array([*begins, ends[-1]], pa.int32())


_DDL: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    _TIMESTAMP: "TIMESTAMP_NTZ",
    _INSTANT: "TIMESTAMP",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}


def spark_type(kind: Any) -> str:
    """Return Spark's name of an Arrow type; raise `ConfigurationError` if Spark has none."""
    if pa.types.is_struct(kind):
        return "STRUCT<" + ", ".join(f"{quoted(field.name)}: {spark_type(field.type)}" for field in kind) + ">"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind not in _DDL:
        raise ConfigurationError(f"Spark has no type for Arrow's {kind}: name another type for the column")
    return _DDL[kind]


def quoted(name: str) -> str:
    """Quote any name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


#: The number of rows from which the types of a state's columns are inferred.
SAMPLE_ROWS: Final = 1000


@dataclass(frozen=True)
class Column:
    """A column of a table; a `kind` of None is inferred, `PICKLED` is pickled bytes, anything else goes to
    `arrow_type`.
    """

    name: str
    kind: Any = None


@dataclass(frozen=True)
class StatePart:
    """Some rows of a state, which one task reads. It can be sent to another process.

    Attributes:
        storage: reads the files.
        layout: turns the entries into rows.
        part: the files, and which entries of them.
    """

    storage: FileCheckpointStore
    layout: Layout
    part: Part

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row as a tuple of its Python values."""
        for piece in self.layout(self.storage, self.part, False):
            yield from zip(*piece, strict=True)


class SavepointTable:
    """The rows of a state; each method reads them again. `title` names the state in errors.

    Iteration yields each row as a tuple of its Python values.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointReader, SavepointWriter
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "counter", ValueStateDescriptor("count"), [{"key": "ann", "value": 10}]
        ... )
        >>> table = SavepointReader.read(writer.write("savepoint")).read_value_state("counter", "count")
        >>> table.column_names, table.count(), list(table)
        (['key', 'value'], 1, [('ann', 10)])
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        reads: Sequence[tuple[Layout, Part]],
        storage: FileCheckpointStore,
    ) -> None:
        self._title = title
        self._columns = tuple(columns)
        self._reads = tuple(reads)
        self._storage = storage
        self._kinds: list[Any] | None = None

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._columns]

    @property
    def partitions(self) -> int:
        """The number of Spark tasks that read the table."""
        return len(self._reads)

    @property
    def schema(self) -> Any:
        """The Arrow schema; reads the first rows for types that were not given."""
        return _schema(self.column_names, self._types())

    @property
    def pickled(self) -> list[str]:
        """The columns that hold pickled bytes; `decode` returns their values."""
        return [name for name, kind in zip(self.column_names, self._types(), strict=True) if kind is None]

    def split(self) -> list[StatePart]:
        """Return the parts that tasks read."""
        return [StatePart(self._storage, layout, part) for layout, part in self._reads]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return chain.from_iterable(part.rows() for part in self.split())

    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(list(piece[0])) for layout, part in self._reads for piece in layout(self._storage, part, True))

    def to_arrow(self) -> Any:
        """Return all rows as an Arrow table.

        Raises:
            StateError: if a value does not fit the type of its column.
        """
        names, kinds = self.column_names, self._types()
        batches = record_batches(self._storage, self._reads, names, kinds, self._title)
        return pa.Table.from_batches(batches, schema=_schema(names, kinds))

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame; raises as `to_arrow` does."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a Spark data frame. Spark tasks read them, so the state never passes through this process.

        Spark's machines must be able to reach the savepoint's files.
        """
        ship_package(spark)
        names, kinds = self.column_names, self._types()
        storage, reads, title = self._storage, self._reads, self._title

        def read(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from record_batches(storage, reads[number : number + 1], names, kinds, title)

        types = [pa.binary() if kind is None else kind for kind in kinds]
        ddl = ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in zip(names, types, strict=True))
        parts = len(reads)
        return spark.range(0, parts, 1, max(1, parts)).mapInArrow(read, ddl)

    def _types(self) -> list[Any]:
        """Return the Arrow type of each column; None if it is pickled."""
        if self._kinds is None:
            sample = list(islice(self, SAMPLE_ROWS)) if any(c.kind is None for c in self._columns) else []
            columns = list(zip(*sample, strict=True)) or [()] * len(self._columns)
            self._kinds = [
                infer_type(values) if column.kind is None else arrow_type(column.kind)
                for column, values in zip(self._columns, columns, strict=True)
            ]
        return self._kinds

    def __repr__(self) -> str:
        return f"SavepointTable({self._title}: {', '.join(self.column_names)})"


def _schema(names: Sequence[str], kinds: Sequence[Any]) -> Any:
    return pa.schema([(n, pa.binary() if kind is None else kind) for n, kind in zip(names, kinds, strict=True)])


def record_batches(
    storage: FileCheckpointStore,
    reads: Sequence[tuple[Layout, Part]],
    names: Sequence[str],
    kinds: Sequence[Any],
    title: str,
) -> Iterator[Any]:
    """Yield the rows of some parts as Arrow batches; `kinds` gives the type of each column, None for pickled bytes."""
    schema = _schema(names, kinds)
    raw = kinds[-1] is None
    types = [*kinds[:-1], pa.binary()] if raw else kinds  # raw pickled bytes stay unchanged
    for layout, part in reads:
        for piece in layout(storage, part, raw):
            arrays = [
                to_array(list(values), kind, f"column {name!r} of {title}")
                for name, kind, values in zip(names, types, piece, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode(data: bytes | None) -> Any:
    """Return the value of a cell of pickled bytes. This runs code that the bytes name: decode only bytes that you
    trust.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import PICKLED, SavepointReader, SavepointWriter, decode
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "shop", ValueStateDescriptor("seen"), [{"key": "ann", "value": {"tea", "rum"}}]
        ... )
        >>> reader = SavepointReader.read(writer.write("savepoint"))
        >>> seen = reader.read_value_state("shop", "seen", value_type=PICKLED).to_arrow()
        >>> sorted(decode(seen["value"][0].as_py()))
        ['rum', 'tea']
    """
    import pickle

    return None if data is None else pickle.loads(data)


__all__ = ["PICKLED", "Column", "SavepointTable", "decode"]


T = TypeVar("T")

#: The number of rows of an Arrow batch between Spark and a task.
BATCH_ROWS: Final = 4096
_POSITION: Final = "_penstock_position"
_ROWS: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("place", pa.binary()),
        ("position", pa.int64()),
        ("key_group", pa.int32()),
        ("key", pa.binary()),
        ("namespace", pa.binary()),
        ("item", pa.binary()),
    ]
)
_ROWS_DDL: Final = "part INT, place BINARY, position BIGINT, key_group INT, key BINARY, namespace BINARY, item BINARY"
_shipped: dict[int, SparkHandle] = {}


def ship_package(spark: SparkSession) -> None:
    """Send this package to Spark's machines, once per session."""
    handle = _shipped.get(id(spark))
    if handle is None or handle.session is not spark:
        _shipped.clear()
        handle = _shipped[id(spark)] = SparkHandle(spark)
    handle.ship_package()


def run_tasks(spark: SparkSession, tasks: Sequence[Callable[[], T]], what: str) -> list[T]:
    """Run functions as tasks of one Spark job, and return their results in order.

    Raises:
        StateError: with the reason, if a task fails for good.
    """
    if not tasks:
        return []
    ship_package(spark)
    pickled, script = [cloud.dumps(task) for task in tasks], pack_script()

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with as_main(script):
                    outcome = pickle.loads(pickled[number])()
                    yield _outcome(number, outcome)

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "number INT, outcome BINARY")
    outcomes = {row[0]: pickle.loads(bytes(row[1])) for row in _collect(frame, what)}
    return [outcomes[number] for number in range(len(tasks))]


def write_frame(
    frame: DataFrame, shape: Shape, name: str, target: Target, max_parallelism: int, parts: Sequence[tuple[int, int]]
) -> list[tuple[StateFile, ...]]:
    """Write keyed state from a data frame, and return the files of each part, a range of key groups.

    Rows are shuffled by part and sorted by entry, so a task holds one entry and one file at a time.
    """
    ship_package(frame.sparkSession)
    script = pack_script()
    # Use cloudpickle itself: Spark's own copy would create other classes for the user's script.
    payload = cloud.dumps((shape, target))
    part_of = [number for number, (first, last) in enumerate(parts) for _ in range(first, last + 1)]

    def encode(batches: Iterable[Any]) -> Iterator[Any]:
        with as_main(script):
            shape, _ = pickle.loads(payload)
            for batch in batches:
                yield from _encoded(batch, shape, max_parallelism, part_of)

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        rows = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        with as_main(script):
            shape, target = pickle.loads(payload)
            for part, of_part in groupby(rows, itemgetter(0)):
                yield _outcome(part, target.write_entries(f"{name}-{part}", _entries(shape, of_part)))

    columns = [f"`{c.replace('`', '``')}`" for c in frame.columns]
    numbered = frame.selectExpr(*columns, f"monotonically_increasing_id() AS {_POSITION}")
    shuffled = numbered.mapInArrow(encode, _ROWS_DDL).repartition(len(parts), "part")
    ordered = shuffled.sortWithinPartitions("part", "place", "position")
    outcomes = _collect(ordered.mapInArrow(write, "number INT, outcome BINARY"), shape.what)
    files = {row[0]: pickle.loads(bytes(row[1])) for row in outcomes}
    return [files.get(number, ()) for number in range(len(parts))]


def _encoded(batch: Any, shape: Shape, max_parallelism: int, part_of: Sequence[int]) -> Iterator[Any]:
    """Yield the rows of a batch of the data frame, in order, as batches of `_ROWS`."""
    positions = batch.column(_POSITION).to_pylist()
    rows = keyed_rows(shape, arrow_blocks([batch.drop_columns([_POSITION])]), max_parallelism)
    encoded = [
        (
            part_of[group],
            entry_key,
            position,
            group,
            dumps(key),
            NO_NAMESPACE if namespace is None else dumps(namespace),
            dumps(item),
        )
        for position, (group, entry_key, key, namespace, item) in zip(positions, rows, strict=True)
    ]
    for begin in range(0, len(encoded), BATCH_ROWS):
        columns = zip(*encoded[begin : begin + BATCH_ROWS], strict=True)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, _ROWS.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


def _entries(shape: Shape, rows: Iterable[Any]) -> Iterator[Entry]:
    """Yield the entries of rows that are sorted by entry."""
    for _, of_entry in groupby(rows, itemgetter(1)):
        some = list(of_entry)
        _, _, _, group, key, namespace, _ = some[0]
        items = [pickle.loads(row[6]) for row in some]
        value = shape.combine(pickle.loads(key), pickle.loads(namespace), items)
        if value is not NOTHING:
            yield group, key, namespace, dumps(value)


def _outcome(number: int, outcome: Any) -> Any:
    arrays = [pa.array([number], pa.int32()), pa.array([dumps(outcome)], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", "outcome"])


def _collect(frame: DataFrame, what: str) -> list[Any]:
    try:
        return frame.collect()
    except Exception as error:
        raise StateError(f"{what}: the Spark job failed: {short_reason(error)}") from error
