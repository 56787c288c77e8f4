"""Files that Flink 2.3 and Spark 4 have written, in `files`: they hold for a table what their writer stored in them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FormatError
from penstock.codecs.arrow_columns import FIRST_GREGORIAN_DAY, convert_leaves, to_gregorian, to_julian
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.parquet import ParquetFormat
from penstock.table import EnvironmentSettings, TableEnvironment

FILES: Final = Path(__file__).parent / "files"
FAR: Final = [dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1)]


def environment(zone: str = "UTC") -> TableEnvironment:
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    configuration = Configuration.from_dict({"execution.target": "local"})
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    tables.get_config().set("table.local-time-zone", zone)
    return tables


def read(
    path: Path, columns: str, query: str = "SELECT * FROM t", *, form: str, zone: str = "UTC", **options: str
) -> list[list[Any]]:
    """The rows of a query over a table `t` of one file or directory."""
    tables = environment(zone)
    more = "".join(f", '{form}.{key.replace('_', '-')}' = '{value}'" for key, value in options.items())
    tables.execute_sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{form}'{more})"
    )
    with tables.execute_sql(query).collect() as rows:
        return sorted((list(row) for row in rows), key=str)


def failure(*given: Any, **more: Any) -> str:
    """The error at the root of reading a table."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        read(*given, **more)
    found: BaseException = caught.value
    while found.__cause__ is not None:
        found = found.__cause__
    return str(found)


# --- Parquet: times --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "zone", "options", "expected"),
    [
        ("flink_new_york", "America/New_York", {}, "00:00:00.000 00:00:00.000"),
        ("flink_new_york", "America/New_York", {"utc_timezone": "false"}, "00:00:00.000 00:00:00.000"),
        ("flink_new_york", "America/New_York", {"utc_timezone": "true"}, "05:00:00.000 05:00:00.000"),
        ("flink_new_york", "UTC", {}, "05:00:00.000 10:00:00.000"),
        ("flink_new_york_int64", "America/New_York", {}, "00:00:00.000 00:00:00.000"),
        ("flink_new_york_int64", "America/New_York", {"utc_timezone": "true"}, "05:00:00.000 05:00:00.000"),
    ],
)
def test_parquet_of_flink_has_times_of_its_zone(file: str, zone: str, options: dict[str, str], expected: str) -> None:
    """K2: Flink 2.3 writes TIMESTAMP '2024-01-01 00:00:00' and the moment 05:00 UTC in New York."""
    ((ts, moment),) = read(
        FILES / f"{file}.parquet",
        "id INT, ts TIMESTAMP(3), l TIMESTAMP_LTZ(3)",
        "SELECT CAST(ts AS STRING), CAST(l AS STRING) FROM t WHERE id = 1",
        form="parquet",
        zone=zone,
        **options,
    )
    assert f"{ts[11:]} {moment[11:]}" == expected


@pytest.mark.parametrize("digits", [3, 6, 9])
def test_old_and_far_times_of_flink_are_what_flink_reads(digits: int) -> None:
    """K2: Flink stores times before 1970 with negative nanoseconds, and its zone and calendar are those of Java."""
    condition = "" if digits < 9 else " WHERE id NOT IN (4, 5)"
    columns = f"id INT, ts TIMESTAMP({digits}), l TIMESTAMP_LTZ({digits})"
    path, query = FILES / "flink_new_york_old.parquet", f"SELECT id, CAST(ts AS STRING) FROM t{condition}"
    if digits == 9:
        assert "column 'ts' has the time 9999-12-31" in failure(path, columns, query, form="parquet")
        return
    found = read(path, columns, query, form="parquet", zone="America/New_York")
    assert [[number, text[:19]] for number, text in found] == [
        [1, "2024-01-01 00:00:00"],
        [2, "2024-03-10 03:30:00"],
        [3, "2024-11-03 01:30:00"],
        [4, "9999-12-31 00:00:00"],
        [5, "0001-01-01 00:00:00"],
        [6, "1850-01-01 00:00:00"],
    ]


def test_parquet_of_spark_has_moments_in_every_zone() -> None:
    """K4: Spark's INT96 is in UTC, which its footer tells."""
    for zone in ("UTC", "America/New_York"):
        found = read(
            FILES / "spark.parquet",
            "id INT, ts TIMESTAMP_LTZ(6)",
            "SELECT UNIX_TIMESTAMP(CAST(ts AS STRING)) FROM t WHERE id = 4",
            form="parquet",
            zone=zone,
        )
        moment = dt.datetime(9999, 12, 31, 17, tzinfo=dt.UTC).timestamp()
        assert found == [[int(moment)]], zone
    query = "SELECT id FROM t WHERE ts > TIMESTAMP '2300-01-01 00:00:00'"
    assert read(FILES / "spark.parquet", "id INT, ts TIMESTAMP(6)", query, form="parquet") == [[4]]


@pytest.mark.parametrize(("unit", "is_old"), [("us", True), ("us", False), ("ms", False)])
@pytest.mark.parametrize("shape", ["ts", "list", "row"])
def test_far_times_of_parquet_are_kept_or_refused(tmp_path: Path, unit: str, is_old: bool, shape: str) -> None:
    """K4."""
    plain = pa.array(FAR, pa.timestamp(unit))
    column = {
        "ts": plain,
        "list": pa.ListArray.from_arrays([0, 1, 2], plain),
        "row": pa.StructArray.from_arrays([plain], ["x"]),
    }[shape]
    pq.write_table(pa.table({"v": column}), tmp_path / "f", use_deprecated_int96_timestamps=is_old)
    element = {"ts": "v", "list": "v[1]", "row": "v.x"}[shape]
    query = f"SELECT CAST({element} AS STRING) FROM t"

    def columns(digits: int) -> str:
        kind = f"TIMESTAMP({digits})"
        return "v " + {"ts": kind, "list": f"ARRAY<{kind}>", "row": f"ROW<x {kind}>"}[shape]

    expected = [["0001-01-01 00:00:00.000000"], ["9999-12-31 23:59:59.000000"]]
    assert read(tmp_path, columns(6), query, form="parquet") == expected
    assert "v" in failure(tmp_path, columns(9), query, form="parquet")


def test_nanoseconds_of_int96_are_kept(tmp_path: Path) -> None:
    """K4."""
    times = pa.array([1_704_067_200_000_000_616, -1, None], pa.int64()).view(pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": times}), tmp_path / "f", use_deprecated_int96_timestamps=True)
    found = read(tmp_path, "ts TIMESTAMP(9)", "SELECT CAST(ts AS STRING) FROM t", form="parquet")
    assert found == [["1969-12-31 23:59:59.999999999"], ["2024-01-01 00:00:00.000000616"], [None]]


def test_far_times_of_int96_in_a_stream(tmp_path: Path) -> None:
    """K4."""
    pq.write_table(
        pa.table({"ts": pa.array(FAR, pa.timestamp("us"))}), tmp_path / "f", use_deprecated_int96_timestamps=True
    )
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    source = FileSource.for_bulk_file_format(ParquetFormat(), str(tmp_path)).build()
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    assert [row["ts"] for row in stream.execute_and_collect()] == FAR


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_written_in_a_zone_come_back(tmp_path: Path, zone: str) -> None:
    """K4: with 'parquet.utc-timezone' = 'false', as Flink would read them."""
    texts = ["0001-01-01 00:00:00", "1582-10-04 12:00:00", "1850-01-01 00:00:00", "2024-03-10 01:30:00"]
    tables = environment(zone)
    tables.execute_sql(
        f"CREATE TABLE t (ts TIMESTAMP(6), x ROW<l TIMESTAMP_LTZ(3)>) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'false')"
    )
    values = ", ".join(f"(TIMESTAMP '{one}', ROW(CAST(TIMESTAMP '{one}' AS TIMESTAMP_LTZ(3))))" for one in texts)
    tables.execute_sql(f"INSERT INTO t VALUES {values}").wait()
    with tables.execute_sql(
        "SELECT CAST(ts AS STRING), CAST(CAST(x.l AS TIMESTAMP(3)) AS STRING) FROM t"
    ).collect() as rows:
        assert sorted([ts[:19], moment[:19]] for ts, moment in rows) == [[one, one] for one in texts]
    (file,) = tmp_path.glob("part-*")
    stored = pq.read_table(file)["ts"][3].as_py()
    ahead = {"UTC": 0, "America/New_York": -5, "Asia/Kolkata": 5.5}[zone]
    assert stored == dt.datetime(2024, 3, 10, 1, 30) - dt.timedelta(hours=ahead)


# --- ORC -------------------------------------------------------------------------------------------------------------


def test_dates_of_orc_are_those_of_the_calendar_of_its_writer() -> None:
    """K4: Spark counts by the Julian calendar before 1582 and says so, Flink does not."""
    query = "SELECT CAST(d AS STRING) FROM t WHERE id = {}"
    assert read(FILES / "spark.orc", "id INT, d DATE", query.format(3), form="orc") == [["0001-01-01"]]
    assert read(FILES / "flink.orc", "id INT, d DATE", query.format(1), form="orc") == [["0001-01-01"]]
    assert read(FILES / "flink.orc", "id INT, d DATE", query.format(2), form="orc") == [["1582-10-04"]]


@pytest.mark.parametrize("digits", [3, 6])
def test_plain_times_of_spark_in_orc(digits: int) -> None:
    """K4: Spark stores TIMESTAMP_NTZ in ORC as a number of microseconds."""
    found = read(
        FILES / "spark.orc",
        f"id INT, ntz TIMESTAMP({digits})",
        "SELECT CAST(ntz AS STRING) FROM t WHERE id = 1",
        form="orc",
    )
    assert found[0][0][:23] == "2024-01-15 12:00:00.123"


def test_far_times_of_orc_are_refused(tmp_path: Path) -> None:
    """K4: Arrow reads ORC in nanoseconds only."""
    message = failure(FILES / "spark.orc", "id INT, ts TIMESTAMP(6)", form="orc")
    assert "outside of the years 1678 to 2261" in message
    tables = environment()
    tables.execute_sql(
        "CREATE TABLE t (id INT, x ROW<ts TIMESTAMP(3)>) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'orc')"
    )
    with pytest.raises(Exception) as caught:  # noqa: PT011
        tables.execute_sql("INSERT INTO t VALUES (1, ROW(TIMESTAMP '9999-12-31 00:00:00'))").wait()
    found: BaseException = caught.value
    while found.__cause__ is not None and not isinstance(found, FormatError):
        found = found.__cause__
    assert "column 'x' cannot be written to ORC" in str(found)


# --- Avro ------------------------------------------------------------------------------------------------------------


def test_avro_of_flink() -> None:
    """K2: a union of null and a record, in blocks of snappy."""
    assert read(FILES / "flink.avro", "id INT NOT NULL, name STRING", form="avro") == [[1, "ann"], [2, None]]
    columns = "id INT, dc38 DECIMAL(38, 18), a ARRAY<STRING>, r ROW<x INT, y STRING>, tm TIME(3), ts TIMESTAMP(3)"
    query = "SELECT id, dc38, a, r.y, tm, ts FROM t"
    assert read(FILES / "flink_all_types.avro", columns, query, form="avro") == [
        [
            1,
            Decimal("-12345678901234567890.123456789012345678"),
            ["x", None],
            "q",
            dt.time(12),
            dt.datetime(2024, 1, 15, 12, 0, 0, 123_000),
        ],
        [2, None, None, None, None, None],
    ]


@pytest.mark.parametrize("codec", ["snappy", "bzip2", "xz", "zstandard"])
def test_avro_of_another_writer_in_each_codec(codec: str) -> None:
    """K2."""
    found = read(FILES / f"fastavro_{codec}.avro", "id BIGINT, name STRING", form="avro")
    expected = [[number, None if number % 3 == 0 else f"name {number}"] for number in range(50)]
    assert sorted(found) == expected


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"])
def test_avro_comes_back_in_each_codec(tmp_path: Path, codec: str) -> None:
    """K4."""
    tables = environment()
    tables.execute_sql(
        "CREATE TABLE t (id INT, name STRING) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'avro', 'avro.codec' = '{codec}')"
    )
    tables.execute_sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)").wait()
    assert read(tmp_path, "id INT, name STRING", form="avro") == [[1, "a"], [2, None]]


def test_damaged_block_of_avro_says_so(tmp_path: Path) -> None:
    """K4: the checksum of a snappy block is checked."""
    data = bytearray((FILES / "fastavro_snappy.avro").read_bytes())
    data[-20] ^= 1  # a byte of the last block's checksum, before the mark of 16 bytes
    (tmp_path / "f.avro").write_bytes(bytes(data))
    assert "cannot be decompressed by snappy" in failure(tmp_path, "id BIGINT, name STRING", form="avro")


# --- columns that are younger than a file ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_columns_that_older_files_lack_are_null(tmp_path: Path, form: str) -> None:
    """K2: as in Flink; also fields of rows, wherever the rows are."""
    tables = environment()
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = '{form}')"
    tables.execute_sql(
        f"CREATE TABLE earlier (id INT, r ROW<x INT>, a ARRAY<ROW<x INT>>, m MAP<STRING, ROW<x INT>>) {options}"
    )
    tables.execute_sql(
        "INSERT INTO earlier VALUES (1, ROW(1), ARRAY[ROW(1)], MAP['k', ROW(1)]), "
        "(2, CAST(NULL AS ROW<x INT>), CAST(NULL AS ARRAY<ROW<x INT>>), CAST(NULL AS MAP<STRING, ROW<x INT>>))"
    ).wait()
    columns = (
        "city STRING, id INT, r ROW<y STRING, x INT, z ROW<q INT>>, a ARRAY<ROW<y STRING, x INT>>, "
        "m MAP<STRING, ROW<y DECIMAL(10, 2), x INT>>, ts TIMESTAMP(3), n ROW<k INT>, d DATE"
    )
    for query, expected in {
        "SELECT city, id, ts, d, n FROM t": [[None, 1, None, None, None], [None, 2, None, None, None]],
        "SELECT city FROM t": [[None], [None]],
        "SELECT id FROM t WHERE city IS NULL": [[1], [2]],
        "SELECT id FROM t WHERE city = 'Delft'": [],
        "SELECT COUNT(*) FROM t": [[2]],
        "SELECT n.k, r.z.q FROM t": [[None, None], [None, None]],
        "SELECT r.y, r.x, r IS NULL FROM t": [[None, 1, False], [None, None, True]],
        "SELECT r IS NULL, r.y FROM t": [[False, None], [True, None]],
        "SELECT a[1].x, a[1].y, m['k'].x, m['k'].y FROM t": [[1, None, 1, None], [None, None, None, None]],
    }.items():
        found = read(tmp_path, columns, query, form=form)
        # A count in a stream has changes; the last one is the result.
        assert (found[-1:] if "COUNT" in query else found) == expected, query
    assert "'city'" in failure(tmp_path, "id INT, city STRING NOT NULL", form=form)


# --- the calendar, nested columns ------------------------------------------------------------------------------------


@given(st.lists(st.integers(-2_000_000, 100_000), min_size=1))
def test_days_of_the_julian_calendar(numbers: list[int]) -> None:
    """K4: both directions, against the day numbers of astronomers."""
    days = np.array(numbers, np.int64)
    days = days[(days < FIRST_GREGORIAN_DAY - 10) | (days >= FIRST_GREGORIAN_DAY)]
    assert (to_gregorian(to_julian(days)) == days).all()
    known = np.array([-719_164, -141_428, -141_427, 0], np.int64)
    expected = ["0001-01-01", "1582-10-04", "1582-10-15", "1970-01-01"]
    assert to_gregorian(known).view("datetime64[D]").astype(str).tolist() == expected


def test_plain_values_inside_of_nested_columns_are_converted() -> None:
    """K4: also of slices, with nulls in every place."""
    kind = pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())])))])
    values: list[Any] = [
        None,
        {"a": [1, None], "m": [("k", {"x": 2}), ("l", None)]},
        {"a": None, "m": None},
        {"a": [], "m": []},
        {"a": [3], "m": [("z", {"x": None})]},
    ]
    column = pa.array(values, kind)

    def widened(leaf: pa.Array) -> pa.Array:
        return leaf.cast(pa.int64()) if leaf.type == pa.int32() else leaf

    for begin in range(6):
        for end in range(begin, 6):
            found = convert_leaves(widened, column[begin:end])
            assert found.to_pylist() == values[begin:end]
            assert found.type.field("a").type == pa.list_(pa.int64())
