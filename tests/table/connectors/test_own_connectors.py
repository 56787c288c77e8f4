"""Connectors that a program brings: what is asked of them, and what they need not have."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from tests.table.connectors.tables import build_reader, build_write, read_rows, scan_of

from penstock.base.config_options import ConfigOptions
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import ColumnsSource
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BigIntType, BooleanType, DataType
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import ColumnsLookup, Connectors, TableConnector, TableLookup, TableOptions
from penstock.sql.tables.tables import (
    NO_WATERMARKS,
    Filtered,
    FilterPushDown,
    ProjectionPushDown,
    TableReader,
    TableScan,
    WatermarkPushDown,
    column_names,
)
from penstock.sql.typed import Constant, Typed

COUNT = ConfigOptions.key("count").int_type().no_default_value()
STEP = ConfigOptions.key("step").int_type().default_value(1)
PAUSE = ConfigOptions.key("pause").duration_type().default_value(0)
SIZE = ConfigOptions.key("size").memory_type().default_value(0)


class Numbers(TableConnector):
    """A source of numbers without any ability."""

    name = "numbers"
    required_options = (COUNT,)
    optional_options = (STEP, PAUSE, SIZE)

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        numbers = range(0, options.required(COUNT) * options.read(STEP), options.read(STEP))
        return TableReader(ColumnsSource(pa.record_batch([pa.array(list(numbers), pa.int64())], ["c0"])))


@dataclass(frozen=True)
class AbleScan(TableScan, ProjectionPushDown, FilterPushDown, WatermarkPushDown):
    """A scan of two columns that notes what is pushed into it."""

    columns: tuple[int, ...] = (0, 1)
    condition: Typed | None = None
    strategy: WatermarkStrategy = NO_WATERMARKS

    def reader(self) -> TableReader:
        arrays = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
        batch = pa.record_batch([arrays[place] for place in self.columns], column_names(len(self.columns)))
        source = ColumnsSource(batch if self.condition is None else batch.slice(0, 1))
        return TableReader(source, strategy=self.strategy)

    def with_columns(self, columns: Sequence[int]) -> AbleScan:
        return replace(self, columns=tuple(self.columns[place] for place in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        return Filtered(replace(self, condition=conditions[0]), tuple(conditions[1:]))

    def with_watermarks(self, strategy: WatermarkStrategy) -> AbleScan:
        return replace(self, strategy=strategy)


class Able(TableConnector):
    """A connector with abilities, METADATA columns and a look-up."""

    name = "able"

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        return AbleScan()

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        return {"offset": BigIntType(False)}

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        rows = pa.table([pa.array([1, 2, 2]), pa.array(["a", "b", "c"])], ["id", "name"])
        return TableLookup(tuple(key), lambda: ColumnsLookup(rows, key))


OWN = Connectors(Numbers(), Able())


def numbers(options: str, columns: str = "n BIGINT") -> str:
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'numbers', {options})"


def test_a_reader_is_enough() -> None:
    """A connector of a few lines reads a table."""
    assert read_rows(build_reader(numbers("'count' = '3', 'step' = '5'"), OWN).source) == [(0,), (5,), (10,)]


def test_an_option_that_is_unknown_is_listed_with_those_that_are_known() -> None:
    """All of the unknown ones at once."""
    with pytest.raises(ValidationError) as refused:
        build_reader(numbers("'count' = '1', 'colour' = 'red', 'cuont' = '1'"), OWN)
    assert str(refused.value) == (
        "Unsupported options found for 'numbers' of table default_catalog.default_database.t: colour, cuont. "
        "Supported options: connector, count, pause, size, step"
    )


def test_an_option_that_is_missing_is_named() -> None:
    """As soon as a query is planned."""
    with pytest.raises(ValidationError, match="Missing required options are: count"):
        build_reader(numbers("'step' = '1'"), OWN)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("'count' = 'many'", r"option count \(integer\) has value 'many'"),
        ("'count' = '1', 'pause' = 'soon'", r"option pause \(duration\) has value 'soon'"),
        ("'count' = '1', 'size' = 'big'", r"option size \(memory size\) has value 'big'"),
    ],
)
def test_a_value_that_cannot_be_read_is_shown(option: str, said: str) -> None:
    """With the table and the option."""
    with pytest.raises(ValidationError, match=said) as refused:
        build_reader(numbers(option), OWN)
    assert "default_catalog.default_database.t" in str(refused.value)


def test_durations_and_sizes_are_texts() -> None:
    """They become ms and bytes."""
    options = TableOptions("t", {"pause": "10 s", "size": "64 kb"})
    assert (options.read(PAUSE), options.read(SIZE), options.read(STEP)) == (10_000, 65_536, 1)


def test_options_below_a_prefix_keep_their_whole_key_in_errors() -> None:
    """So that the author of the table finds them."""
    below = TableOptions("t", {"csv.count": "x", "other": "1"}).below("csv.")
    assert dict(below) == {"count": "x"}
    with pytest.raises(ValidationError, match=r"option csv.count "):
        below.read(COUNT)


def test_partitions_and_metadata_are_refused_where_there_are_none() -> None:
    """And not left out in silence."""
    with pytest.raises(ValidationError, match="connector 'numbers' has no partitions"):
        build_reader("CREATE TABLE t (n BIGINT) PARTITIONED BY (n) WITH ('connector' = 'numbers', 'count' = '1')", OWN)
    with pytest.raises(ValidationError, match=r"Invalid metadata key 'place' in column 'place' .* keys: none"):
        build_reader(numbers("'count' = '1'", "n BIGINT, place STRING METADATA"), OWN)


def test_metadata_must_be_of_a_type_that_fits() -> None:
    """One to which the connector's own can be cast."""
    columns = "CREATE TABLE t (id BIGINT, o {} METADATA FROM 'offset') WITH ('connector' = 'able')"
    assert OWN.scan(scan_of(columns.format("STRING"))) == AbleScan()
    with pytest.raises(ValidationError, match="cannot be declared as 'DATE' because the type must be castable"):
        OWN.scan(scan_of(columns.format("DATE")))


def test_what_a_connector_does_not_do_is_said() -> None:
    """Writing, and being asked for keys."""
    with pytest.raises(ValidationError, match="can only be used as a source"):
        OWN.writer(build_write(numbers("'count' = '1'")))
    with pytest.raises(ValidationError, match="cannot be asked for the rows of keys"):
        OWN.lookup(scan_of(numbers("'count' = '1'")), (0,))


ABLE = "CREATE TABLE t (id BIGINT, name STRING) WITH ('connector' = 'able')"


def test_abilities_give_changed_copies() -> None:
    """A planner can try them, and go back."""
    scan = OWN.scan(scan_of(ABLE))
    assert isinstance(scan, AbleScan)
    narrow = scan.with_columns((1,))
    assert read_rows(narrow.reader().source) == [("a",), ("b",), ("c",)]
    assert read_rows(scan.reader().source) == [(1, "a"), (2, "b"), (3, "c")]
    true, other = Constant(BooleanType(False), True), Constant(BooleanType(False), False)
    assert scan.with_conditions((true, other)) == Filtered(replace(scan, condition=true), (other,))
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    assert scan.with_watermarks(monotonous).reader().strategy == monotonous


def test_what_was_pushed_down_is_what_is_read() -> None:
    """The planner leaves the changed scan in the plan."""
    node = scan_of(ABLE)
    scan = OWN.scan(node)
    assert isinstance(scan, AbleScan)
    pushed = replace(node, source=scan.with_columns((1,)))
    assert read_rows(OWN.reader(pushed).source) == [("a",), ("b",), ("c",)]


def test_a_look_up_answers_for_many_keys_at_once() -> None:
    """Each row comes with the number of its key; keys may be there twice, and NULL has no rows."""
    found = OWN.lookup(scan_of(ABLE), (0,))
    assert found.key == (0,)
    assert found.create_reader is not None
    reader = found.create_reader()
    reader.open()
    rows, numbers_of_keys = reader.lookup(pa.record_batch([pa.array([2, 7, None, 1, 2])], ["k"]))
    reader.close()
    assert rows.to_pydict() == {"c0": [2, 2, 1, 2, 2], "c1": ["b", "c", "a", "b", "c"]}
    assert numbers_of_keys.to_pylist() == [0, 0, 3, 4, 4]


def test_a_look_up_without_matches_has_the_columns() -> None:
    """Of their types, so that nobody has to look twice."""
    reader = ColumnsLookup(pa.table([pa.array([1]), pa.array(["a"])], ["id", "name"]), (0,))
    rows, numbers_of_keys = reader.lookup(pa.record_batch([pa.array([5])], ["k"]))
    assert rows.schema == pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    assert len(numbers_of_keys) == 0


def test_connectors_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the entry point that their package declares."""
    point = importlib.metadata.EntryPoint("numbers", f"{__name__}:Numbers", "penstock.table.connectors")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] * (group == point.group))
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: Numbers)
    assert read_rows(built_in().reader(scan_of(numbers("'count' = '2'"))).source) == [(0,), (1,)]


def test_the_types_of_metadata_are_checked_both_ways() -> None:
    """A sink needs a column that can be cast to its metadata."""

    class Sink(TableConnector):
        name = "sink"

        def writable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
            return {"key": BigIntType()}

    table = "CREATE TABLE t (n BIGINT, k {} METADATA FROM 'key') WITH ('connector' = 'sink')"
    with pytest.raises(ValidationError, match="can only be used as a source"):
        Connectors(Sink()).writer(build_write(table.format("INT")))
    with pytest.raises(ValidationError, match="must be castable to metadata type 'BIGINT'"):
        Connectors(Sink()).writer(build_write(table.format("DATE")))
    with pytest.raises(ValidationError, match=r"Invalid metadata key 'other'.*writes these metadata keys: key"):
        Connectors(Sink()).writer(build_write(table.replace("'key'", "'other'").format("INT")))
