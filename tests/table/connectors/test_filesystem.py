"""`filesystem`: what is written is read, whatever the format; directories by partition; restarts in the middle."""

from __future__ import annotations

import pickle
import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.table.connectors.tables import build_reader, read_rows, scan_of, table_rows, writer_of

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.file.commit_coordinator import PartitionCommitPolicy
from penstock.connectors.file.committer import IGNORE, FileCommitter
from penstock.formats.file_format import MalformedRecordError
from penstock.runtime.connector import Boundedness
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.filesystem.connector import FilesScan
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import IntType
from penstock.table import EnvironmentSettings, PartitionTimeExtractor, TableEnvironment
from penstock.testing.connectors import SinkHost

FORMATS = ("csv", "json", "parquet", "orc", "avro")
TYPES = (
    "id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, c CHAR(2), y BYTES, da DATE, "
    "tm TIME(0), ts TIMESTAMP(3), us TIMESTAMP(6), lt TIMESTAMP_LTZ(3), ar ARRAY<INT>, ro ROW<x INT, z STRING>"
)
ROWS: list[tuple[Any, ...]] = [
    (1, True, -128, 0.5, 1e300, Decimal("1.50000"), "plain", "ab", b"\x00\xff", 0, 0, 0, 1_000, 0, [1, 2], (1, "z")),
    (
        2,
        False,
        127,
        -1.25,
        0.1,
        Decimal("-99999.99999"),
        'a,"b"\nß',
        "cd",
        b"x",
        -1,
        3_723_000,
        -1_000_000,
        1_577_934_245_678_901_000,
        1_577_934_245_678_000_000,
        [None, 7],
        (None, "t"),
    ),
    (3, None, None, None, None, None, "n", "xy", None, None, None, None, None, None, [5], None),
]


def ddl(path: Path, columns: str, name: str = "json", more: str = "", by: str = "") -> str:
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = '{name}'{more}"
    return f"CREATE TABLE t ({columns}) {by} WITH ({options})"


def written(table: str, rows: list[tuple[Any, ...]], run: str = "0") -> None:
    """Rows through the sink, committed."""
    sink = pickle.loads(pickle.dumps(writer_of(table).sink))
    host = SinkHost(run=run)
    writer = sink.create_writer(host)
    writer.write_batch([(0, row) for row in rows], None)
    writer.flush(True)
    committables = writer.prepare_commit()
    sink.create_committer(host).commit(pickle.loads(pickle.dumps(committables)))
    writer.close()


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", FORMATS)
def test_all_types_come_back(tmp_path: Path, name: str, parallelism: int) -> None:
    """G8, G9: what a sink has written a source reads, with restarts after every batch, too."""
    columns, expected = TYPES, ROWS
    if name == "orc":  # it has no times of day
        columns = TYPES.replace("tm TIME(0), ", "")
        expected = [(*row[:10], *row[11:]) for row in ROWS]
    table = ddl(tmp_path, columns, name)
    written(table, expected)
    assert sorted(table_rows(table, parallelism)) == expected
    assert sorted(table_rows(table, parallelism, hostile=True)) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_restarts_in_the_middle_of_large_files(tmp_path: Path, name: str) -> None:
    """Nothing is lost or there twice."""
    rows = [(n, f"{n} and some text, so that there are several blocks") for n in range(30_000)]
    table = ddl(tmp_path, "n INT, s STRING", name)
    written(table, rows[:20_000])
    written(table, rows[20_000:], run="1")
    assert sorted(table_rows(table, 2, hostile=True)) == rows


@pytest.mark.parametrize("name", FORMATS)
def test_partitions_are_directories(tmp_path: Path, name: str) -> None:
    """Their columns are not in the files. Signs are escaped, and NULL and the empty text have a name of their own."""
    table = ddl(tmp_path, "a INT, due DATE, k STRING", name, by="PARTITIONED BY (due, k)")
    rows = [(1, 0, "x/y=z%"), (2, 0, "b"), (3, 18_000, None), (4, None, "b")]
    written(table, [*rows, (5, 0, "")])
    assert {str(one.parent.relative_to(tmp_path)) for one in tmp_path.rglob("part-*")} == {
        "due=1970-01-01/k=x%2Fy%3Dz%25",
        "due=1970-01-01/k=b",
        "due=1970-01-01/k=__HIVE_DEFAULT_PARTITION__",
        "due=2019-04-14/k=__HIVE_DEFAULT_PARTITION__",
        "due=__HIVE_DEFAULT_PARTITION__/k=b",
    }
    assert sorted(table_rows(table), key=repr) == sorted([*rows, (5, 0, None)], key=repr)


@pytest.mark.parametrize("by", ["", "PARTITIONED BY (k)"])
def test_small_batches_wait_and_come_in_order(tmp_path: Path, by: str) -> None:
    """Among batches of many rows and of changes, in rows and in columns; many at once, in a second, or when flushed."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    layouts = [RowLayout(["a", "b"], [IntType(), IntType()]), RowLayout(["c", "d"], [IntType(), IntType()])]
    host = SinkHost()
    writer = writer_of(ddl(tmp_path, "a INT, k INT", "debezium-json", by=by)).sink.create_writer(host)
    count = 0
    for _ in range(60):
        size = chance.choice([1, 2, 30, 64, 65, 200])
        rows = [(count + index, 7) for index in range(size)]
        count += size
        data = RowData(chance.choice(layouts), rows)
        form = chance.randrange(4)
        if form == 0:
            writer.write_changes(data, bytes(size), None)
        elif form == 1:
            writer.write_batch([(0, row) for row in rows], None)
        else:
            writer.write_columns(data if form == 2 else ColumnData(data.columns), None)
        due_ms = writer.next_flush_ms()
        if due_ms is not None and chance.random() < 0.2:
            assert host.now_ms() < due_ms <= host.now_ms() + 1_000
            writer.flush(False)
            assert writer.next_flush_ms() is None
    writer.flush(True)
    FileCommitter("", IGNORE).commit(writer.prepare_commit())
    (text,) = (path.read_text() for path in tmp_path.rglob("part-*"))
    assert [int(number) for number in re.findall(r'"a": ?(\d+)', text)] == list(range(count)), f"seed {seed}"


def test_partitions_columns_and_limits_are_pushed_down(tmp_path: Path) -> None:
    """Files of other partitions are not opened, nor are columns made that nobody wants."""
    table = ddl(tmp_path, "a INT, b STRING, k INT", by="PARTITIONED BY (k)")
    written(table, [(n, f"b{n}", n % 3) for n in range(30)])
    scan = built_in().scan(scan_of(table))
    assert isinstance(scan, FilesScan)
    assert scan.partitions() == [{"k": "0"}, {"k": "1"}, {"k": "2"}]
    (tmp_path / "k=1" / "broken").write_text("{")
    one = scan.with_partitions([{"k": "2"}]).with_columns((2, 1))
    assert sorted(read_rows(one.reader().source)) == sorted((2, f"b{n}") for n in range(2, 30, 3))
    assert read_rows(scan.with_partitions([]).reader().source) == []
    assert len(read_rows(one.with_limit(4).reader().source)) == 4
    only_partition = scan.with_partitions([{"k": "0"}]).with_columns((2,))
    assert read_rows(only_partition.reader().source) == [(0,)] * 10
    with pytest.raises(ValidationError, match="has values of k, not of a"):
        scan.with_partitions([{"a": "1"}])


def test_where_the_files_are_is_known_to_who_reads_them_in_another_way(tmp_path: Path) -> None:
    """With all that was pushed down."""
    table = ddl(tmp_path, "a INT, k INT", "csv", ", 'csv.field-delimiter' = ';'", "PARTITIONED BY (k)")
    scan = built_in().scan(scan_of(table))
    assert isinstance(scan, FilesScan)
    found = scan.with_partitions([{"k": "1"}]).reader().location
    assert found is not None
    assert (found.path, found.format, found.options) == (str(tmp_path), "csv", (("field-delimiter", ";"),))
    assert (found.partition_keys, found.partitions, found.is_plain) == (("k",), ("k=1",), True)
    limited = scan.with_limit(1).reader().location
    assert limited is not None
    assert not limited.is_plain


def test_metadata_says_where_a_row_comes_from(tmp_path: Path) -> None:
    """Of the types that the table declares."""
    (tmp_path / "one.json").write_text('{"a": 1}\n')
    columns = (
        "p STRING METADATA FROM 'file.path', a INT, n STRING METADATA FROM 'file.name', "
        "s INT METADATA FROM 'file.size', m TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time'"
    )
    ((path, a, name, size, modified),) = table_rows(ddl(tmp_path, columns))
    assert (path, a, name, size) == (str(tmp_path / "one.json"), 1, "one.json", 9)
    assert modified // 1_000_000 == int((tmp_path / "one.json").stat().st_mtime * 1000)


def test_only_files_that_match_are_read(tmp_path: Path) -> None:
    """The pattern is for the whole path."""
    for name in ("a.json", "b.json", "c.txt"):
        (tmp_path / name).write_text(f'{{"a": "{name}"}}\n')
    table = ddl(tmp_path, "a STRING", more=f", 'source.path.regex-pattern' = '{tmp_path}/[a-b]\\.json'")
    assert sorted(table_rows(table)) == [("a.json",), ("b.json",)]


def test_files_that_come_later_are_read_where_they_are_watched_for(tmp_path: Path) -> None:
    """Then the table never ends."""
    watched = build_reader(ddl(tmp_path, "a INT", more=", 'source.monitor-interval' = '1 s'")).source
    assert watched.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert build_reader(ddl(tmp_path, "a INT")).source.boundedness is Boundedness.BOUNDED


@pytest.mark.parametrize(("name", "bad"), [("csv", "1,x"), ("json", '{"a": 1, "b": "x"}'), ("json", "{")])
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, name: str, bad: str) -> None:
    """Or left out, if the table says so."""
    good = "1,2" if name == "csv" else '{"a": 1, "b": 2}'
    (tmp_path / "f").write_text("\n".join([good, good, bad, good]) + "\n")
    with pytest.raises(MalformedRecordError) as refused:
        table_rows(ddl(tmp_path, "a INT, b INT", name))
    assert (refused.value.file, refused.value.line) == (str(tmp_path / "f"), 3)
    found = table_rows(ddl(tmp_path, "a INT, b INT", name, f", '{name}.ignore-parse-errors' = 'true'"))
    assert found.count((1, 2)) == 3


def test_quoted_line_feeds_and_comments_in_files(tmp_path: Path) -> None:
    """A record may go on in the next line."""
    (tmp_path / "f.csv").write_text('# none\n1,"a\nb"\n\n2,c\n')
    table = ddl(tmp_path, "a INT, b STRING", "csv", ", 'csv.allow-comments' = 'true'")
    assert table_rows(table) == [(1, "a\nb"), (2, "c")]


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_a_file_without_a_column_is_named(tmp_path: Path, name: str) -> None:
    """A column that the file lacks is NULL, and an error if it is NOT NULL."""
    written(ddl(tmp_path, "a INT", name), [(1,)])
    assert table_rows(ddl(tmp_path, "a INT, b INT", name)) == [(1, None)]
    with pytest.raises(FormatError, match="no column 'b', which is NOT NULL") as refused:
        table_rows(ddl(tmp_path, "a INT, b INT NOT NULL", name))
    assert str(tmp_path) in str(refused.value)


def test_a_partition_that_is_no_value_is_named(tmp_path: Path) -> None:
    """As is a file outside of all partitions."""
    table = ddl(tmp_path, "a INT, k INT", by="PARTITIONED BY (k)")
    (tmp_path / "k=x").mkdir()
    (tmp_path / "k=x" / "f").write_text('{"a": 1}\n')
    with pytest.raises(FormatError, match="partition column 'k': 'x' is no INT"):
        table_rows(table)
    (tmp_path / "k=x" / "f").rename(tmp_path / "f")
    with pytest.raises(FormatError, match="is in no partition: no directory of its path is called k="):
        table_rows(table)


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        (", 'sink.shuffle-by-partition.enable' = 'true'", UnsupportedError, "'sink.shuffle-by-partition.enable' of"),
        (", 'json.colour' = 'red'", ValidationError, "Unsupported options found for 'filesystem' .*: json.colour"),
        (", 'csv.null-literal' = 'x'", ValidationError, "Unsupported options found .*: csv.null-literal"),
        (", 'source.monitor-interval' = '0 s'", ValidationError, "it must be above 0"),
    ],
)
def test_options_that_are_not_built_or_not_known(tmp_path: Path, more: str, kind: type[Exception], said: str) -> None:
    """By name."""
    with pytest.raises(kind, match=said):
        build_reader(ddl(tmp_path, "a INT", more=more))


def test_a_sink_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    """When the statement is planned."""
    with pytest.raises(UnsupportedError, match="partitioned by column 'k' of type ARRAY<INT>"):
        writer_of(ddl(tmp_path, "a INT, k ARRAY<INT>", by="PARTITIONED BY (k)"))
    with pytest.raises(ValidationError, match=r"'sink.rolling-policy.file-size' .* it must be above 0"):
        writer_of(ddl(tmp_path, "a INT", more=", 'sink.rolling-policy.file-size' = '0'"))
    with pytest.raises(ValidationError, match="writes these metadata keys: none"):
        writer_of(ddl(tmp_path, "a INT, p STRING METADATA FROM 'file.path'"))


def environment(**options: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    for key, value in options.items():
        tables.get_config().set(key, value)
    return tables


def test_a_query_goes_from_files_to_files(tmp_path: Path) -> None:
    """By INSERT, also into one partition."""
    tables = environment()
    for name, of in (("first_", "csv"), ("second_", "parquet")):
        text = ddl(tmp_path / name, "a INT, k STRING", of, by="PARTITIONED BY (k)")
        tables.execute_sql(text.replace("TABLE t ", f"TABLE {name} "))
    tables.execute_sql("INSERT INTO first_ PARTITION (k = 'x') VALUES (1), (2)").wait()
    tables.execute_sql("INSERT INTO second_ SELECT a * 10, k FROM first_").wait()
    with tables.execute_sql("SELECT * FROM second_").collect() as rows:
        assert sorted(map(tuple, rows)) == [(10, "x"), (20, "x")]


def test_a_job_that_is_stopped_and_restored_writes_each_row_once(tmp_path: Path) -> None:
    """G9: from a savepoint on, rows follow those that are there."""
    columns = "n BIGINT"
    sequence = "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000'"
    path: str | None = None
    for _ in range(2):
        tables = environment(**{"parallelism.default": "1"})
        if path is not None:
            tables.get_config().set("execution.state-recovery.path", path)
        tables.execute_sql(
            f"CREATE TABLE s ({columns}) WITH ('connector' = 'datagen', 'rows-per-second' = '200000', {sequence})"
        )
        tables.execute_sql(ddl(tmp_path / "out", columns, "parquet"))
        job = tables.execute_sql("INSERT INTO t SELECT n FROM s").get_job_client()
        assert job is not None
        path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(30)
    found = sorted(table_rows(ddl(tmp_path / "out", columns, "parquet"))) if (tmp_path / "out").exists() else []
    assert found == [(n,) for n in range(1, len(found) + 1)]


# --- partitions that are complete, and files that are merged ---------------------------------------------------------


def read_files(path: Path) -> dict[str, list[str]]:
    """The names of the files in each partition, without what distinguishes runs."""
    names: dict[str, list[str]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            names.setdefault(str(file.parent.relative_to(path)), []).append(file.name.split("-")[0])
    return names


HOURS = "TIMESTAMPADD(HOUR, CAST(n / 50 AS INT), TIMESTAMP '2020-01-01 00:00:00')"


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize("name", ["json", "parquet"])
def test_files_of_a_checkpoint_are_merged_and_partitions_marked(tmp_path: Path, mode: str, name: str) -> None:
    tables = environment(**{"parallelism.default": "3", "execution.runtime-mode": mode})
    tables.execute_sql(
        "CREATE TABLE s (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'fields.n.start' = '0', 'fields.n.end' = '149')"
    )
    more = (
        ", 'auto-compaction' = 'true', 'sink.partition-commit.policy.kind' = 'success-file'"
        ", 'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 h'"
        ", 'partition.time-extractor.timestamp-formatter' = 'yyyyMMdd HH'"
        ", 'sink.partition-commit.success-file.name' = 'done'"
    )
    tables.execute_sql(ddl(tmp_path / "t", "n BIGINT, h STRING", name, more, "PARTITIONED BY (h)"))
    tables.execute_sql(f"INSERT INTO t SELECT n, DATE_FORMAT({HOURS}, 'yyyyMMdd HH') FROM s").wait()
    with tables.execute_sql("SELECT h, n FROM t WHERE h <> 'x'").collect() as rows:
        assert sorted(row[1] for row in rows) == list(range(150))
    files = read_files(tmp_path / "t")
    if mode == "MICRO_BATCH":  # an epoch may end in the middle of an hour
        files = {hour: ["compacted", *(name for name in names if name == "done")] for hour, names in files.items()}
    assert files == {f"h=20200101 0{hour}": ["compacted", "done"] for hour in range(3)}


class Recorded(PartitionCommitPolicy):
    """Appends a line for each partition to a file."""

    def __init__(self, path: str, sign: str) -> None:
        self._path, self._sign = path, sign

    def commit(self, path: str, values: Any) -> None:
        with open(self._path, "a") as file:
            print(self._sign, path.rpartition("/")[2], *values.values(), file=file)


class Years(PartitionTimeExtractor):
    def extract(self, keys: Any, values: Any) -> Any:
        return datetime(int(values[keys.index("y")]), 1, 1)


def test_policies_and_times_may_be_classes(tmp_path: Path) -> None:
    more = (
        f", 'sink.partition-commit.policy.kind' = 'custom,success-file'"
        f", 'sink.partition-commit.policy.class' = '{__name__}.Recorded'"
        f", 'sink.partition-commit.policy.class.parameters' = '{tmp_path / 'log'};+'"
        ", 'sink.partition-commit.trigger' = 'partition-time'"
        f", 'partition.time-extractor.kind' = 'custom', 'partition.time-extractor.class' = '{__name__}.Years'"
    )
    tables = environment()
    tables.execute_sql(ddl(tmp_path / "t", "a INT, y STRING", more=more, by="PARTITIONED BY (y)"))
    tables.execute_sql("INSERT INTO t VALUES (1, '2020')").wait()
    assert (tmp_path / "log").read_text() == "+ y=2020 2020\n"
    assert read_files(tmp_path / "t")["y=2020"] == ["_SUCCESS", "part"]


def get_time(values: dict[str, str], **options: str) -> str:
    more = "".join(f", '{key.replace('__', '-').replace('_', '.')}' = '{value}'" for key, value in options.items())
    columns = ", ".join(f"{key} STRING" for key in values)
    more += ", 'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.policy.kind' = 'success-file'"
    writer = writer_of(ddl(Path("/t"), f"a INT, {columns}", more=more, by=f"PARTITIONED BY ({', '.join(values)})"))
    sink: Any = writer.sink
    bucket = "/".join(f"{key}={value}" for key, value in values.items())
    time_ms = sink._partition_commit.time.get_time_ms(bucket)
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


PATTERN_KEY = "partition_time__extractor_timestamp__pattern"
FORMATTER_KEY = "partition_time__extractor_timestamp__formatter"
ZONE_KEY = "sink_partition__commit_watermark__time__zone"


@pytest.mark.parametrize(
    ("values", "options", "time"),
    [
        ({"d": "2020-05-06"}, {}, "2020-05-06 00:00:00"),
        ({"d": "2020-5-6"}, {}, "2020-05-06 00:00:00"),
        ({"d": "2020-05-06", "h": "7"}, {PATTERN_KEY: "$d $h:00:00"}, "2020-05-06 07:00:00"),
        ({"y": "2020", "m": "5"}, {PATTERN_KEY: "$y-$m-01"}, "2020-05-01 00:00:00"),
        ({"d": "20200506"}, {FORMATTER_KEY: "yyyyMMdd"}, "2020-05-06 00:00:00"),
        ({"d": "20200506", "h": "23"}, {PATTERN_KEY: "$d$h", FORMATTER_KEY: "yyyyMMddHH"}, "2020-05-06 23:00:00"),
        ({"d": "2020-05-06"}, {ZONE_KEY: "Asia/Shanghai"}, "2020-05-05 16:00:00"),
        ({"d": "2020-03-29 02%3A30%3A00"}, {ZONE_KEY: "Europe/Berlin"}, "2020-03-29 01:30:00"),  # skipped by clocks
    ],
)
def test_the_time_of_a_partition_is_made_of_its_values(values: Any, options: Any, time: str) -> None:
    assert get_time(values, **options) == time


def test_a_partition_without_a_time_is_named() -> None:
    with pytest.raises(FormatError, match="the time of a partition is 'x', which is not of the form yyyy-MM-dd"):
        get_time({"d": "x"})


COMMIT = ", 'sink.partition-commit.policy.kind' = 'success-file'"


@pytest.mark.parametrize(
    ("more", "by", "said"),
    [
        (COMMIT, "", "the table has no partitions"),
        (
            ", 'sink.partition-commit.delay' = '1 h'",
            "PARTITIONED BY (k)",
            "it needs 'sink.partition-commit.policy.kind'",
        ),
        (
            f"{COMMIT}, 'sink.partition-commit.trigger' = 'x'",
            "PARTITIONED BY (k)",
            "it is process-time or partition-time",
        ),
        (COMMIT.replace("success-file", "metastore"), "PARTITIONED BY (k)", "there is no Hive metastore here"),
        (COMMIT.replace("success-file", "x"), "PARTITIONED BY (k)", "it is success-file or custom, or both, not 'x'"),
        (COMMIT.replace("success-file", "custom"), "PARTITIONED BY (k)", "the path of a class in Python"),
        (", 'compaction.file-size' = '1 mb'", "", "no effect without 'auto-compaction'"),
        (", 'auto-compaction' = 'true', 'compaction.parallelism' = '0'", "", "it must be above 0, not 0"),
    ],
)
def test_commit_options_that_contradict_each_other_are_refused(tmp_path: Path, more: str, by: str, said: str) -> None:
    with pytest.raises((ValidationError, UnsupportedError), match=said):
        writer_of(ddl(tmp_path, "a INT, k STRING", more=more, by=by))
