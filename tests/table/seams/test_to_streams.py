"""A3: streams of tables: rows, changes, the older forms, and one job for tables and streams."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from tests.table.seams.streams import changelog, environments, list_columns, read_changes, texts, timed, with_timestamps

from penstock.base.errors import JobExecutionError, UnsupportedError, WrongTimeError
from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.sql.data.errors import ValidationError
from penstock.table import ChangelogMode, EnvironmentSettings, Schema, StreamTableEnvironment, TableEnvironment

WORDS = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
COUNTS = "SELECT word, SUM(n) AS total FROM words GROUP BY word"
INSERT, BEFORE, AFTER, DELETE = RowKind


def with_words() -> StreamTableEnvironment:
    """An environment that knows `words`."""
    streams, tables = environments()
    tables.create_temporary_view("words", streams.from_collection([("a", 1), ("b", 2), ("a", 3)], WORDS))
    return tables


def test_rows_have_names_and_a_type() -> None:
    """Those of the columns."""
    tables = with_words()
    stream = tables.to_data_stream(tables.from_path("words"))
    assert stream.get_type() == WORDS
    assert sorted(stream.map(lambda row: (row.word, row["n"])).collect()) == [("a", 1), ("a", 3), ("b", 2)]


def test_a_float_of_a_table_has_the_digits_of_a_float() -> None:
    """K4: in rows, tuples and single values."""
    _, tables = environments()
    table = tables.sql_query("SELECT f, ARRAY[f] AS a FROM (VALUES (CAST(0.1 AS FLOAT))) AS t (f)")
    assert [tuple(row) for row in tables.to_data_stream(table).collect()] == [(0.1, [0.1])]


def test_changes_have_kinds() -> None:
    """Both rows of an update."""
    tables = with_words()
    assert texts(tables.to_changelog_stream(tables.sql_query(COUNTS))) == [
        "+I[a, 1]",
        "+I[b, 2]",
        "+U[a, 4]",
        "-U[a, 1]",
    ]


def test_an_upsert_changelog_leaves_out_the_rows_before() -> None:
    """Rows replace others by the key that the schema declares."""
    tables = with_words()
    schema = Schema.new_builder().primary_key("word").build()
    stream = tables.to_changelog_stream(tables.sql_query(COUNTS), schema, ChangelogMode.upsert())
    assert texts(stream) == ["+I[a, 1]", "+I[b, 2]", "+U[a, 4]"]


#: queries over `a` and `b` that may drop the new row of an update, each with what is left of `a` in the end
LAST_ROWS = {
    "SELECT id, v FROM a WHERE v > 2": {2: 9},
    "SELECT id, v FROM a WHERE v NOT IN (SELECT x FROM (VALUES (1), (0)) AS t (x))": {2: 9},
    "SELECT id, v FROM a WHERE EXISTS (SELECT 1 FROM (VALUES (2)) AS t (x) WHERE a.v > t.x)": {2: 9},
    "SELECT id, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND a.v > b.w)": {2: 9},
    "SELECT id, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND a.v <= b.w)": {2: 9},
    "SELECT id, v FROM a WHERE id IN (SELECT id FROM b)": {1: 0, 2: 9},
    "SELECT a.id, a.v FROM b JOIN a ON a.id = b.id WHERE a.v > b.w": {2: 9},
    "SELECT a.id, a.v FROM a LEFT JOIN b ON a.id = b.id AND a.v > b.w WHERE b.w IS NOT NULL": {2: 9},
    "SELECT id, MAX(v) FROM a GROUP BY id HAVING MAX(v) < 8": {1: 0},
}


@pytest.mark.parametrize("query", list(LAST_ROWS))
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("has_before", [False, True])
def test_an_upsert_changelog_ends_a_key_with_a_deletion(query: str, parallelism: int, has_before: bool) -> None:
    """K1: a reader that keeps the last row of each key ends with the table, whichever rows an update drops."""
    streams, tables = environments()
    streams.set_parallelism(parallelism)
    key = Schema.new_builder().column("id", "INT NOT NULL").column("v", "INT").primary_key("id").build()
    values = [(1, 5), (1, 1), (1, 7), (1, 0), (2, 1), (2, 9)]
    rows = [Row.of_kind(INSERT if value in (values[0], values[4]) else AFTER, *value) for value in values]
    if has_before:
        before = {new: Row.of_kind(BEFORE, *old) for old, new in pairwise(values) if new[0] == old[0]}
        rows = [one for row in rows for one in (before.get(tuple(row)), row) if one is not None]
    mode = ChangelogMode.all() if has_before else ChangelogMode.upsert()
    of_type = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.INT()])
    changes = streams.from_collection(rows, of_type).set_parallelism(1)
    tables.create_temporary_view("a", tables.from_changelog_stream(changes, key, mode))
    other = Schema.new_builder().column("id", "INT NOT NULL").column("w", "INT").primary_key("id").build()
    inserts = streams.from_collection([Row(1, 2), Row(2, 2)], Types.ROW_NAMED(["id", "w"], [Types.INT(), Types.INT()]))
    tables.create_temporary_view("b", tables.from_changelog_stream(inserts, other, ChangelogMode.upsert()))
    target = Schema.new_builder().primary_key("id").build()
    kept: dict[int, int] = {}
    for row in tables.to_changelog_stream(tables.sql_query(query), target, ChangelogMode.upsert()).collect():
        assert row.get_row_kind() is not BEFORE
        if row.get_row_kind() is DELETE:
            kept.pop(row[0], None)
        else:
            kept[row[0]] = row[1]
    assert kept == LAST_ROWS[query]


@pytest.mark.parametrize("limit", [1, 2])
def test_an_upsert_changelog_of_a_top_1_is_refused_by_the_key_of_its_rows(limit: int) -> None:
    """K1: where one row takes the place of another, whose key is not the same, the former row would stay."""
    tables = with_words()
    schema = Schema.new_builder().column("word", "STRING NOT NULL").primary_key("word").build()
    query = f"SELECT word FROM (SELECT DISTINCT word FROM words) ORDER BY word DESC LIMIT {limit}"
    convert = partial(tables.to_changelog_stream, tables.sql_query(query), schema, ChangelogMode.upsert())
    if limit == 1:
        with pytest.raises(UnsupportedError, match="not told apart by the primary key"):
            convert()
    else:
        assert sorted(texts(convert())) == ["+I[a]", "+I[b]"]


def test_a_target_schema_casts() -> None:
    """By the places of the columns."""
    tables = with_words()
    schema = Schema.new_builder().column("w", "STRING").column("d", "DOUBLE").build()
    stream = tables.to_changelog_stream(tables.from_path("words"), schema)
    assert texts(stream) == ["+I[a, 1.0]", "+I[a, 3.0]", "+I[b, 2.0]"]


@pytest.mark.parametrize(
    ("type_info", "records"),
    [
        (Types.ROW([Types.STRING(), Types.INT()]), ["+I[a, 1]", "+I[a, 3]", "+I[b, 2]"]),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), ["('a', 1)", "('a', 3)", "('b', 2)"]),
    ],
)
def test_an_append_stream_has_records_of_a_type(type_info: TypeInformation, records: list[str]) -> None:
    """Fields by their places."""
    tables = with_words()
    stream = tables.to_append_stream(tables.from_path("words"), type_info)
    assert texts(stream) == records
    assert stream.get_type() == type_info


def test_a_retract_stream_has_flags() -> None:
    """True for what comes, false for what goes."""
    tables = with_words()
    stream = tables.to_retract_stream(tables.sql_query(COUNTS), Types.TUPLE([Types.STRING(), Types.INT()]))
    assert sorted(stream.collect()) == [(False, ("a", 1)), (True, ("a", 1)), (True, ("a", 4)), (True, ("b", 2))]
    single = tables.to_retract_stream(tables.sql_query("SELECT COUNT(*) FROM words"), Types.LONG())
    assert sorted(single.collect()) == [(False, 1), (False, 2), (True, 1), (True, 2), (True, 3)]


# --- changelogs in ---------------------------------------------------------------------------------------------------


def test_a_changelog_is_a_table_that_changes() -> None:
    """What comes after sees all kinds."""
    streams, tables = environments()
    rows = changelog((INSERT, ("a", 1)), (INSERT, ("b", 2)), (BEFORE, ("a", 1)), (AFTER, ("a", 5)), (DELETE, ("b", 2)))
    table = tables.from_changelog_stream(streams.from_collection(rows, WORDS))
    tables.create_temporary_view("words", table)
    with tables.sql_query("SELECT SUM(n) FROM words").execute().collect() as found:
        assert [row[0] for row in found if row.get_row_kind() in (INSERT, AFTER)][-1] == 5


def test_an_upsert_changelog_is_completed() -> None:
    """By the key: what was there before, and the whole row that goes."""
    streams, tables = environments()
    rows = changelog((INSERT, ("a", 1)), (AFTER, ("a", 5)), (AFTER, ("b", 2)), (DELETE, ("a", None)))
    schema = Schema.new_builder().column("word", "STRING").column("n", "INT NOT NULL").primary_key("word").build()
    table = tables.from_changelog_stream(streams.from_collection(rows, WORDS), schema, ChangelogMode.upsert())
    assert texts(tables.to_changelog_stream(table)) == ["+I[a, 1]", "+I[b, 2]", "+U[a, 5]", "-D[a, 5]", "-U[a, 1]"]


def test_a_changelog_in_insert_only_mode_has_inserts() -> None:
    """Others fail the job, with the row."""
    streams, tables = environments()
    stream = streams.from_collection(changelog((INSERT, ("a", 1)), (DELETE, ("a", 1))), WORDS)
    with pytest.raises(JobExecutionError, match="has one of the kind -D"):
        read_changes(tables.from_changelog_stream(stream, None, ChangelogMode.insert_only()))


# --- event time ------------------------------------------------------------------------------------------------------

ROWTIME = (
    Schema.new_builder()
    .column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
    .watermark("rowtime", "SOURCE_WATERMARK()")
    .build()
)
EVENTS = [("a", 1), ("b", 2), ("a", 8), ("c", 19)]


def test_timestamps_come_into_the_table_and_out_again() -> None:
    """The one event time of a table is the timestamp of its records."""
    streams, tables = environments()
    table = tables.from_data_stream(timed(streams, EVENTS[:2], WORDS, 1), ROWTIME)
    assert list_columns(table)[-1] == "`rowtime` TIMESTAMP_LTZ(3) *ROWTIME* METADATA"
    assert with_timestamps(tables.to_data_stream(table)) == [
        ("+I[a, 1, 1970-01-01 00:00:01+00:00]", 1_000),
        ("+I[b, 2, 1970-01-01 00:00:02+00:00]", 2_000),
    ]


def test_records_of_a_table_without_event_time_have_no_timestamps() -> None:
    """Whatever the records had that it was made of."""
    streams, tables = environments()
    table = tables.from_data_stream(timed(streams, EVENTS[:1], WORDS, 1))
    assert with_timestamps(tables.to_data_stream(table)) == [("+I[a, 1]", None)]


def test_watermarks_of_a_stream_close_windows_of_tables_and_go_on() -> None:
    """A window of the table, then one of the stream, each fired by the watermarks of the source."""
    from penstock.common.time import Time
    from penstock.datastream.window import TumblingEventTimeWindows

    streams, tables = environments()
    tables.create_temporary_view("events", timed(streams, EVENTS, WORDS, 1), ROWTIME)
    windows = tables.sql_query(
        "SELECT window_time, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(rowtime), INTERVAL '5' SECOND)) "
        "GROUP BY window_start, window_end, window_time"
    )
    stream = tables.to_data_stream(windows)
    assert with_timestamps(stream.map(lambda row: row.c)) == [("1", 9_999), ("1", 19_999), ("2", 4_999)]
    stream = tables.to_data_stream(windows).map(lambda row: row.c)
    tens = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(lambda one, other: one + other)
    assert sorted(tens.collect()) == [1, 3]


def test_the_timestamp_is_metadata_of_a_changelog() -> None:
    """It is left out of the rows, with the same schema as on the way in."""
    streams, tables = environments()
    table = tables.from_data_stream(timed(streams, EVENTS[:2], WORDS, 1), ROWTIME)
    stream = tables.to_changelog_stream(table, ROWTIME)
    assert with_timestamps(stream) == [("+I[a, 1]", 1_000), ("+I[b, 2]", 2_000)]
    declared = (
        Schema.new_builder().column("w", "STRING").column("n", "INT").column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
    )
    assert with_timestamps(tables.to_changelog_stream(table, declared.build()))[0] == ("+I[a, 1]", 1_000)


def test_several_event_times_are_none() -> None:
    """The program has to say which."""
    streams, tables = environments()
    tables.create_temporary_view("events", timed(streams, EVENTS, WORDS, 1), ROWTIME)
    both = tables.sql_query("SELECT rowtime, rowtime AS other FROM events")
    with pytest.raises(ValidationError, match=r"Found more than one rowtime field: \[rowtime, other\]"):
        tables.to_data_stream(both)
    one = tables.sql_query("SELECT rowtime, CAST(rowtime AS TIMESTAMP(3)) AS other FROM events WHERE n = 1")
    assert [time for _, time in with_timestamps(tables.to_data_stream(one))] == [1_000]


def test_a_source_watermark_is_of_streams() -> None:
    """Tables of connectors declare theirs."""
    _, tables = environments()
    tables.execute_sql(
        "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH ('connector' = 'x')"
    )
    tables.create_temporary_view("empty_", tables.sql_query("SELECT 1 AS x"))
    with pytest.raises(ValidationError):
        tables.to_data_stream(tables.from_path("t"))


# --- one job ---------------------------------------------------------------------------------------------------------


def test_tables_and_streams_are_one_job(capfd: pytest.CaptureFixture[str]) -> None:
    """`execute` runs attached inserts and sinks of streams together, and nothing before."""
    streams, tables = environments()
    tables.create_temporary_view("words", streams.from_collection([("a", 1)], WORDS))
    tables.execute_sql(
        "CREATE TABLE shown (w STRING, n INT) WITH ('connector' = 'print', 'print-identifier' = 'table')"
    )
    inserts = tables.create_statement_set()
    inserts.add_insert_sql("INSERT INTO shown SELECT * FROM words").add_insert("shown", tables.from_path("words"))
    inserts.attach_as_datastream()
    tables.to_data_stream(tables.from_path("words")).print("stream")
    assert capfd.readouterr().out == ""
    streams.execute("both")
    assert sorted(capfd.readouterr().out.splitlines()) == ["stream> +I[a, 1]", "table> +I[a, 1]", "table> +I[a, 1]"]
    with pytest.raises(ValidationError, match="has no INSERT"):
        inserts.attach_as_datastream()


def test_an_insert_of_a_table_leaves_sinks_of_streams_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """It runs what it reads, and no more."""
    streams, tables = environments()
    stream = streams.from_collection([("a", 1)], WORDS)
    stream.print("stream")
    tables.execute_sql("CREATE TABLE shown (w STRING, n INT) WITH ('connector' = 'print')")
    tables.from_data_stream(stream).execute_insert("shown").wait()
    assert capfd.readouterr().out == "+I[a, 1]\n"
    streams.execute()
    assert capfd.readouterr().out == "stream> +I[a, 1]\n"


# --- what is refused -------------------------------------------------------------------------------------------------


def _typed(tables: StreamTableEnvironment, *fields: TypeInformation) -> Any:
    return tables.to_append_stream(tables.from_path("words"), Types.TUPLE(list(fields)))


def test_rows_that_change_are_no_data_stream() -> None:
    """The error names the step that sends them."""
    tables = with_words()
    with pytest.raises(ValidationError, match=r"doesn't support consuming update changes.*Aggregate\(groupBy=\[word\]"):
        tables.to_data_stream(tables.sql_query(COUNTS))
    with pytest.raises(ValidationError, match="doesn't support consuming update changes"):
        tables.to_append_stream(tables.sql_query(COUNTS), WORDS)
    with pytest.raises(ValidationError, match="doesn't support consuming update changes"):
        tables.to_changelog_stream(tables.sql_query(COUNTS), None, ChangelogMode.insert_only())


def test_updates_without_a_key() -> None:
    """In both directions; and a key by which the query does not tell rows apart."""
    tables = with_words()
    with pytest.raises(ValidationError, match="needs a primary key"):
        tables.to_changelog_stream(tables.sql_query(COUNTS), None, ChangelogMode.upsert())
    stream = tables.to_data_stream(tables.from_path("words"))
    with pytest.raises(ValidationError, match="needs a primary key"):
        tables.from_changelog_stream(stream, None, ChangelogMode.upsert())
    schema = Schema.new_builder().primary_key("total").build()
    with pytest.raises(UnsupportedError, match=r"not told apart by the primary key \(total\)"):
        tables.to_changelog_stream(tables.sql_query(COUNTS), schema, ChangelogMode.upsert())


def test_columns_that_do_not_fit() -> None:
    """Too many, too few, or of another type."""
    tables = with_words()
    with pytest.raises(ValidationError, match=r"1 fields, but the query has 2: \[word, n\]"):
        _typed(tables, Types.STRING())
    with pytest.raises(ValidationError, match="Incompatible types for sink column 'f1'"):
        _typed(tables, Types.STRING(), Types.STRING())
    with pytest.raises(ValidationError, match="Different number of columns"):
        tables.to_changelog_stream(tables.from_path("words"), Schema.new_builder().column("w", "STRING").build())
    with pytest.raises(TypeError, match=r"one of penstock\.common\.Types"):
        tables.to_append_stream(tables.from_path("words"), "INT")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made of a table"):
        tables.to_data_stream("words")  # type: ignore[arg-type]


def test_null_where_the_schema_has_none() -> None:
    """Fails the job."""
    streams, tables = environments()
    table = tables.from_data_stream(streams.from_collection([(None, 1)], WORDS))
    schema = Schema.new_builder().column("w", "STRING NOT NULL").column("n", "INT").build()
    with pytest.raises(JobExecutionError, match="Column 'w' is NOT NULL"):
        texts(tables.to_changelog_stream(table, schema))


def test_a_changelog_is_of_rows() -> None:
    """Other records have no kinds."""
    streams, tables = environments()
    with pytest.raises(ValidationError, match=r"Changelog streams have rows.*Long"):
        tables.from_changelog_stream(streams.from_collection([1], Types.LONG()))


def test_tables_alone_have_no_streams() -> None:
    """The error says which environment has."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    streams, beside = environments()
    with pytest.raises(TypeError, match=r"StreamTableEnvironment\.create\(env\)"):
        tables.create_temporary_view("v", streams.from_collection([1]))
    tables.execute_sql("CREATE TABLE shown (n INT) WITH ('connector' = 'print')")
    inserts = tables.create_statement_set().add_insert_sql("INSERT INTO shown SELECT 1")
    with pytest.raises(WrongTimeError, match="attach_as_datastream needs an environment of streams"):
        inserts.attach_as_datastream()
    assert beside.create_statement_set() is not None
