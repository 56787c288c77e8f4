"""Rows of a query that meet in one row of a table, and deletions that have a key alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows
from tests.table.streaming.written import RETRACTS, UPSERTS, Source, by_key, planned_sink, written

from penstock.base.errors import PenstockError
from penstock.connectors.collect import CollectSink
from penstock.plan.transformation import Transformation
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import TimestampType
from penstock.sql.functions.definition import BIGINT, STRING
from penstock.sql.logical.nodes import ALL, Write
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableWriter

COLUMNS = {"a": BIGINT, "b": STRING}
SINK = "a BIGINT, b STRING, PRIMARY KEY (a) NOT ENFORCED"
VOTES = Rows(
    {"who": STRING, "votes": BIGINT},
    [("+I", ("x", 1)), ("+I", ("y", 1)), ("-D", ("y", 1)), ("+I", ("y", 2)), ("-D", ("x", 1))],
)
#: the upsert key is `who`, and the table is written by `votes`
PER_VOTES = "SELECT SUM(votes), who FROM t GROUP BY who"


# --- keys that differ -----------------------------------------------------------------------------------------------


def test_a_query_whose_rows_may_share_a_primary_key_has_to_say_what_then() -> None:
    with pytest.raises(ValidationError) as error:
        written(PER_VOTES, SINK, t=VOTES)
    assert "Primary key: [a], upsert key: [who]" in str(error.value)
    assert "ON CONFLICT DO NOTHING" in str(error.value)


def test_a_query_with_the_key_of_the_table_need_not() -> None:
    found = written(
        "SELECT SUM(votes), who FROM t GROUP BY who", "a BIGINT, b STRING PRIMARY KEY NOT ENFORCED", t=VOTES
    )
    assert [kind for kind, _ in found] == ["+I", "+I", "-D", "+I", "-D"]


def test_the_key_may_be_cast_to_a_type_that_holds_all_its_values() -> None:
    sql = "SELECT CAST(a AS STRING), COUNT(*) FROM t GROUP BY a"
    assert written(sql, "a STRING, n BIGINT, PRIMARY KEY (a) NOT ENFORCED", t=Rows(COLUMNS, [(1, "x")])) == [
        ("+I", ("1", 1))
    ]
    narrow = "SELECT CAST(a AS TINYINT), COUNT(*) FROM t GROUP BY a"
    with pytest.raises(ValidationError, match="upsert key: none"):
        written(narrow, "a TINYINT, n BIGINT, PRIMARY KEY (a) NOT ENFORCED", t=Rows(COLUMNS, [(1, "x")]))


TIMED = Source(
    {"k": STRING, "ts": TimestampType(3)},
    [("x", 1 * 10**9), ("x", 3 * 10**9), ("y", 3 * 10**9), ("x", 9 * 10**9)],
    watermark="WATERMARK FOR ts AS ts",
)
#: windows, and the edges that tell those of one key apart
WINDOWS = {
    "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND)": {"window_start", "window_end", "window_time"},
    "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)": {
        "window_start",
        "window_end",
        "window_time",
    },
    "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)": {"window_end", "window_time"},
    "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)": {"window_end", "window_time"},
}
PER_WINDOW = "SELECT k, {0}, COUNT(*) AS n FROM TABLE({1}) GROUP BY k, window_start, window_end, window_time"
BY_WINDOW = "k STRING, w TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, w) NOT ENFORCED"


@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("edge", ["window_start", "window_end", "window_time"])
def test_results_of_windows_are_written_by_key_and_one_edge(window: str, edge: str) -> None:
    """K2: Flink asks for ON CONFLICT."""
    sql = PER_WINDOW.format(edge, window)
    if edge not in WINDOWS[window]:
        with pytest.raises(ValidationError, match=r"Please specify an ON CONFLICT clause"):
            written(sql, BY_WINDOW, t=TIMED)
        return
    found = written(sql, BY_WINDOW, t=TIMED)
    assert {kind for kind, _ in found} == {"+I"}
    keys = [values[:2] for _, values in found]
    assert len(set(keys)) == len(keys) > 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, TUMBLE_START(ts, INTERVAL '4' SECOND), COUNT(*) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '4' SECOND)",
        "SELECT k, window_start, CAST(1 AS BIGINT) FROM (SELECT DISTINCT k, window_start, window_end FROM "
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND)))",
        "SELECT k, window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, window_start, window_end "
        f"ORDER BY n DESC) AS place FROM ({PER_WINDOW.format('window_start, window_end', next(iter(WINDOWS)))})) "
        "WHERE place = 1",
        "SELECT a.k, a.window_start, b.n FROM ({0}) AS a JOIN ({0}) AS b ON a.k = b.k AND a.window_start = "
        "b.window_start AND a.window_end = b.window_end".format(
            PER_WINDOW.format("window_start, window_end", next(iter(WINDOWS)))
        ),
        "SELECT k, w, n + 1 FROM (SELECT k, window_start AS w, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, "
        "DESCRIPTOR(ts), INTERVAL '4' SECOND)) GROUP BY k, window_start, window_end) WHERE n > 0",
    ],
    ids=["group window", "distinct", "top 1", "join", "above a projection"],
)
def test_steps_over_windows_are_written_by_key_and_start(sql: str) -> None:
    found = written(sql, BY_WINDOW, t=TIMED)
    assert len({values[:2] for _, values in found}) == len(found) > 0


def test_refusal_names_remedies_that_keep_no_state() -> None:
    with pytest.raises(ValidationError) as error:
        written(PER_VOTES, SINK, t=VOTES)
    message = str(error.value)
    assert "declare PRIMARY KEY (b) NOT ENFORCED" in message
    assert "one row for each (a)" in message
    assert "'table.exec.sink.upsert-materialize' = 'NONE'" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("table.exec.sink.require-on-conflict", "false"), ("table.exec.sink.upsert-materialize", "FORCE")],
)
def test_options_say_the_last_row_counts(key: str, value: str) -> None:
    assert written(PER_VOTES, SINK, options={key: value}, t=VOTES) == [
        ("+I", (1, "x")),
        ("+U", (1, "y")),
        ("+U", (1, "x")),
        ("+I", (2, "y")),
        ("-D", (1, "x")),
    ]


def test_none_hands_rows_on_as_they_come() -> None:
    found = written(PER_VOTES, SINK, options={"table.exec.sink.upsert-materialize": "NONE"}, t=VOTES)
    assert found[1:3] == [("+I", (1, "y")), ("-D", (1, "y"))]


def test_none_takes_back_rows_whose_key_another_one_may_have() -> None:
    """Else a row of the table would stay for good."""
    votes = Rows({"who": STRING, "votes": BIGINT}, [("x", 1), ("x", 2)])
    found = written(PER_VOTES, SINK, options={"table.exec.sink.upsert-materialize": "NONE"}, t=votes)
    assert found == [("+I", (1, "x")), ("-U", (1, "x")), ("+U", (3, "x"))]


@pytest.mark.parametrize(
    ("sql", "key", "expected"),
    [
        ("SELECT who, SUM(votes) FROM t GROUP BY who", "who, n", [("x", 3), ("y", 1)]),
        ("SELECT MAX(who), SUM(votes) FROM t", "who", [("y", 4)]),
        ("SELECT who, votes FROM t ORDER BY votes DESC, who LIMIT 1", "who, n", [("x", 2)]),
        ("SELECT who, n FROM (SELECT DISTINCT who, 1 AS n FROM t) ORDER BY who DESC LIMIT 1", "who", [("y", 1)]),
        ("SELECT who, n FROM (SELECT DISTINCT who, 1 AS n FROM t) ORDER BY who DESC LIMIT 2", "who, n", None),
    ],
)
@pytest.mark.parametrize("materialize", ["AUTO", "NONE"])
def test_a_row_that_moves_to_another_primary_key_leaves_the_one_it_had(
    sql: str, key: str, expected: list[Any] | None, materialize: str
) -> None:
    """K1, K3: also where the query replaces rows by fewer columns than the table has in its key, as by none."""
    columns = [
        f"{name} {kind}{' NOT NULL' * (name in key.split(', '))}" for name, kind in (("who", STRING), ("n", BIGINT))
    ]
    sink = f"{', '.join(columns)}, PRIMARY KEY ({key}) NOT ENFORCED"
    votes = Rows({"who": STRING, "votes": BIGINT}, [("x", 1), ("x", 2), ("y", 1)])
    kept: dict[tuple[Any, ...], Any] = {}
    places = [("who", "n").index(name) for name in key.split(", ")]
    for kind, row in written(sql, sink, options={"table.exec.sink.upsert-materialize": materialize}, t=votes):
        found = tuple(row[place] for place in places)
        if kind in ("-U", "-D"):
            del kept[found]
        else:
            kept[found] = row
    assert sorted(kept.values()) == (expected or [("x", 1), ("y", 1)])


@pytest.mark.parametrize("query", ["SELECT DISTINCT a, b FROM t", "SELECT a, b FROM t UNION SELECT a, b FROM t"])
def test_a_distinct_that_is_left_out_has_the_key_of_its_table(query: str) -> None:
    """K1: an update moves the row to another key of all columns."""
    changes: list[Any] = [("+I", (1, "x")), ("-U", (1, "x")), ("+U", (1, "y"))]
    table = Source(COLUMNS, changes, more=", PRIMARY KEY (a) NOT ENFORCED", by=retracting())
    kept: set[Any] = set()
    for kind, row in written(query, "a BIGINT, b STRING, PRIMARY KEY (a, b) NOT ENFORCED", t=table):
        (kept.discard if kind in ("-U", "-D") else kept.add)(row)
    assert kept == {(1, "y")}


def test_force_needs_no_rows_as_they_were_where_the_keys_are_the_same() -> None:
    sql, sink = "SELECT who, SUM(votes) FROM t GROUP BY who", "who STRING, n BIGINT, PRIMARY KEY (who) NOT ENFORCED"
    votes = Rows({"who": STRING, "votes": BIGINT}, [("x", 1), ("x", 2)])
    found = written(sql, sink, options={"table.exec.sink.upsert-materialize": "FORCE"}, t=votes)
    assert found == [("+I", ("x", 1)), ("+U", ("x", 3))]


def test_deduplicate_goes_back_to_the_row_before() -> None:
    assert written(PER_VOTES, SINK, conflict="DEDUPLICATE", t=VOTES)[2] == ("+U", (1, "x"))


#: `print` takes updates in either form, `blackhole` without the rows as they were
PRINTS = TableWriter(CollectSink(True), ALL, takes_either=True, follows_query=True)
SWALLOWS = TableWriter(CollectSink(True), ALL, wants_before=False, follows_query=True)
PER_PERSON = "SELECT who, SUM(votes) FROM t GROUP BY who"
BY_PERSON = "who STRING, n BIGINT, PRIMARY KEY (who) NOT ENFORCED"
TWO_VOTES = Rows({"who": STRING, "votes": BIGINT}, [("x", 1), ("x", 2)])


@pytest.mark.parametrize("writer", [PRINTS, SWALLOWS], ids=["print", "blackhole"])
def test_tables_that_follow_the_query_are_written_by_key_where_the_key_is_another(writer: TableWriter) -> None:
    """K3: as a Flink 2.3 plans it."""
    with pytest.raises(ValidationError, match="differs from the primary key"):
        written(PER_VOTES, SINK, writer=writer, t=VOTES)
    found = written(PER_VOTES, SINK, writer=writer, conflict="DEDUPLICATE", t=VOTES)
    assert [kind for kind, _ in found] == ["+I", "+U", "+U", "+I", "-D"]
    has_before = [("+I", ("x", 1)), ("-U", ("x", 1)), ("+U", ("x", 3))]
    for conflict in (None, "DEDUPLICATE"):
        found = written(PER_PERSON, BY_PERSON, writer=writer, conflict=conflict, t=TWO_VOTES)
        assert found == [change for change in has_before if writer.wants_before or change[0] != "-U"]
        found = written(PER_PERSON, "who STRING, n BIGINT", writer=writer, conflict=conflict, t=TWO_VOTES)
        assert found == [change for change in has_before if writer.wants_before or change[0] != "-U"]
    with pytest.raises(ValidationError, match="only accepts INSERT"):
        written("SELECT votes, who FROM t", SINK, writer=writer, conflict="DEDUPLICATE", t=TWO_VOTES)


def test_deduplicate_of_inserts_needs_no_state() -> None:
    rows = Rows(COLUMNS, [(1, "x"), (1, "y")])
    assert written("SELECT * FROM t", SINK, conflict="DEDUPLICATE", t=rows) == [("+I", (1, "x")), ("+I", (1, "y"))]


def timed(rows: list[Any]) -> Source:
    return Source({**COLUMNS, "ts": TimestampType(3)}, rows, more=", WATERMARK FOR ts AS ts")


def test_nothing_keeps_the_first_row() -> None:
    rows = timed([(1, "x", 1_000_000_000), (1, "y", 2_000_000_000), (2, "z", 3_000_000_000)])
    found = written("SELECT a, b FROM t", SINK, conflict="NOTHING", t=rows)
    assert found == [("+I", (1, "x")), ("+I", (2, "z"))]


def test_error_takes_a_row_that_comes_in_the_place_of_one_that_goes() -> None:
    rows: list[Any] = [
        ("+I", (1, "x", 1_000_000_000)),
        ("+I", (1, "y", 1_000_000_000)),
        ("-D", (1, "x", 1_000_000_000)),
    ]
    assert written("SELECT a, b FROM t", SINK, conflict="ERROR", t=timed(rows)) == [("+I", (1, "y"))]
    with pytest.raises(PenstockError) as error:
        written("SELECT a, b FROM t", SINK, conflict="ERROR", t=timed(rows[:2]))
    assert "have the primary key ['a'=1]" in str(error.value.__cause__ or error.value)


@pytest.mark.parametrize("conflict", ["ERROR", "NOTHING"])
def test_waiting_needs_watermarks(conflict: str) -> None:
    with pytest.raises(ValidationError, match=r"requires all source tables to define watermarks.*database\.t"):
        written("SELECT * FROM t", SINK, conflict=conflict, t=Rows(COLUMNS, []))


@pytest.mark.parametrize(
    ("writer", "reason"),
    [(TableWriter(CollectSink(True)), "only accepts INSERT"), (RETRACTS, "requires UPDATE_BEFORE")],
)
def test_on_conflict_is_for_tables_that_are_written_by_key(writer: TableWriter, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        written("SELECT * FROM t", SINK, writer=writer, conflict="DEDUPLICATE", t=Rows(COLUMNS, [(1, "x")]))


@pytest.mark.parametrize(("shuffle", "is_by_key"), [("FORCE", True), ("AUTO", False), ("NONE", False)])
def test_rows_go_to_subtasks_by_the_primary_key_where_that_is_forced(shuffle: str, is_by_key: bool) -> None:
    table = Rows({"who": STRING, "votes": BIGINT}, [("x", 1)])
    options = {"table.exec.sink.keyed-shuffle": shuffle}
    columns = "a BIGINT, b STRING PRIMARY KEY NOT ENFORCED"
    _, (rows,) = planned_sink(PER_VOTES, columns, UPSERTS, options, None, {"t": table})
    (read,) = rows.transformation.inputs
    assert isinstance(read.partitioner, HashPartitioner) == is_by_key


# --- deletions by key -----------------------------------------------------------------------------------------------

CHANGES: list[Any] = [("+I", (1, "x")), ("+I", (2, "y")), ("+U", (2, "z")), ("-D", (1, None))]
BY_KEY = Source(COLUMNS, CHANGES, more=", PRIMARY KEY (a) NOT ENFORCED", by=by_key())
TAKES_KEYS = TableWriter(CollectSink(True), ALL, wants_before=False, deletes_by_key=True)


def test_a_deletion_by_key_is_completed_for_a_table_that_wants_whole_rows() -> None:
    assert written("SELECT * FROM t", SINK, t=BY_KEY)[-1] == ("-D", (1, "x"))
    assert written("SELECT * FROM t", SINK, writer=RETRACTS, t=BY_KEY)[2:] == [
        ("-U", (2, "y")),
        ("+U", (2, "z")),
        ("-D", (1, "x")),
    ]


def test_a_table_that_takes_keys_gets_the_changes_as_they_are() -> None:
    assert written("SELECT * FROM t", SINK, writer=TAKES_KEYS, t=BY_KEY) == CHANGES
    assert written("SELECT * FROM t WHERE a < 9", SINK, writer=TAKES_KEYS, t=BY_KEY) == CHANGES


def test_tables_that_take_keys_and_others_do_not_share_deletions() -> None:
    manager, kinds = manager_of(BY_KEY.ddl("t")), []
    plan = plan_query("SELECT * FROM t", manager)

    def add(step: Transformation) -> None:
        kinds.append(step.kind)

    planner = StreamPlanner(add, lambda scan: BY_KEY.reader(), StreamSession(), manager.calls())
    for name, writer, is_normalized in (("x", TAKES_KEYS, 0), ("y", UPSERTS, 1), ("z", TAKES_KEYS, 1)):
        planner.written(Write(schema=plan.schema, input=plan, path=("c", "d", name), key=(0,)), writer)
        assert (kinds.count("Changelog Normalize"), kinds.count("Source")) == (is_normalized, 1)


def test_a_filter_of_other_columns_needs_the_whole_row() -> None:
    """A row that the filter no longer lets through is deleted, and no update is sent in its place."""
    found = written("SELECT * FROM t WHERE b <> 'z'", SINK, writer=TAKES_KEYS, t=BY_KEY)
    assert found == [("+I", (1, "x")), ("+I", (2, "y")), ("-D", (2, "y")), ("-D", (1, "x"))]


def test_without_its_key_a_row_cannot_be_deleted_by_key() -> None:
    sql = "SELECT a + 1, b FROM t"
    options = {"table.exec.sink.require-on-conflict": "false"}
    assert written(sql, SINK, writer=TAKES_KEYS, options=options, t=BY_KEY)[-1] == ("-D", (2, "x"))


def test_whole_deletions_pass_to_a_table_that_is_written_by_key() -> None:
    """Nothing holds the rows: the second insert of a key stays one."""
    changes: list[Any] = [("+I", (1, "x")), ("+I", (1, "y")), ("-D", (1, "y"))]
    table = Source(COLUMNS, changes, more=", PRIMARY KEY (a) NOT ENFORCED", by=by_key(has_full_deletes=True))
    assert written("SELECT * FROM t", SINK, t=table) == changes


def test_a_row_as_it_was_is_not_handed_to_a_table_that_is_written_by_key() -> None:
    changes: list[Any] = [("+I", (1, "x")), ("-U", (1, "x")), ("+U", (1, "y"))]
    table = Source(COLUMNS, changes, more=", PRIMARY KEY (a) NOT ENFORCED", by=retracting())
    assert written("SELECT * FROM t", SINK, t=table) == [("+I", (1, "x")), ("+U", (1, "y"))]
    assert written("SELECT * FROM t", SINK, writer=RETRACTS, t=table) == changes


def test_changes_that_may_come_again_count_once() -> None:
    changes: list[Any] = [("+I", (1, "x")), ("+I", (1, "x")), ("-U", (1, "x")), ("+U", (1, "y")), ("-D", (1, "y"))]
    table = Source(COLUMNS, [*changes, changes[-1]], more=", PRIMARY KEY (a) NOT ENFORCED", by=retracting())
    sql, options = "SELECT COUNT(*), SUM(a) FROM t", {"table.exec.source.cdc-events-duplicate": "true"}
    found = written(sql, "n BIGINT, s BIGINT", writer=UPSERTS, options=options, t=table)
    assert found == [("+I", (1, 1)), ("-D", (1, 1))]
    sql = "SELECT COUNT(*), MAX(b) FROM t"
    assert written(sql, "n BIGINT, b STRING", writer=UPSERTS, options=options, t=table) == [
        ("+I", (1, "x")),
        ("-D", (1, "x")),
        ("+I", (1, "y")),
        ("-D", (1, "y")),
    ]


def retracting() -> Any:
    return replace(by_key(), is_upsert=False, has_before=True)


def test_a_table_that_only_inserts_counts_as_one_where_the_sink_follows() -> None:
    writer = TableWriter(CollectSink(True), ALL, wants_before=False, follows_query=True)
    assert written("SELECT * FROM t", SINK, writer=writer, t=Rows(COLUMNS, [(1, "x")])) == [("+I", (1, "x"))]
