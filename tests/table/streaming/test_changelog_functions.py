"""FROM_CHANGELOG and TO_CHANGELOG: codes of changes in a column instead of kinds of rows."""

from __future__ import annotations

import pytest
from tests.table.planned import manager_of, plan_query, planned
from tests.table.running import Rows, run

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BigIntType, VarCharType

TEXT = VarCharType(2_147_483_647)
COUNTS = Rows(
    {"name": TEXT, "score": BigIntType()},
    [("+I", ("Alice", 10)), ("-U", ("Alice", 10)), ("+U", ("Alice", 30)), ("-D", ("Alice", 30))],
)
EVENTS = {"id": BigIntType(), "op": TEXT, "name": TEXT}


def test_each_change_becomes_a_row_with_its_name_in_front() -> None:
    answer = run("SELECT * FROM TO_CHANGELOG(input => TABLE t)", t=COUNTS)
    assert answer.names == ["op", "name", "score"]
    assert answer.shown() == [
        ("+I", "INSERT", "Alice", 10),
        ("+I", "UPDATE_BEFORE", "Alice", 10),
        ("+I", "UPDATE_AFTER", "Alice", 30),
        ("+I", "DELETE", "Alice", 30),
    ]


def test_rows_that_only_come_are_inserts() -> None:
    answer = run("SELECT * FROM TO_CHANGELOG(TABLE t)", t=Rows({"a": BigIntType()}, [(1,), (2,)]))
    assert answer.shown() == [("+I", "INSERT", 1), ("+I", "INSERT", 2)]


def test_changes_without_a_code_are_left_out() -> None:
    sql = """SELECT * FROM TO_CHANGELOG(input => TABLE t, op => DESCRIPTOR(deleted),
             op_mapping => MAP['INSERT, UPDATE_AFTER', 'false', 'DELETE', 'true'])"""
    answer = run(sql, t=COUNTS)
    assert answer.names == ["deleted", "name", "score"]
    assert answer.shown() == [("+I", "false", "Alice", 10), ("+I", "false", "Alice", 30), ("+I", "true", "Alice", 30)]


BY_CODES = """SELECT * FROM TO_CHANGELOG(input => TABLE ({}),
             op_mapping => MAP['INSERT, UPDATE_AFTER', 'upsert', 'DELETE', 'delete'])"""


def test_previous_row_without_a_code_is_a_deletion_where_no_new_row_needs_to_follow() -> None:
    """K1: a join with a further condition drops the new row of an update."""
    joined = "SELECT t.name, t.score FROM u JOIN t ON t.score < u.score"
    limit = Rows({"score": BigIntType()}, [(20,)])
    scores = Rows(COUNTS.columns, COUNTS.rows[:3])
    assert run(BY_CODES.format(joined), u=limit, t=scores).shown() == [
        ("+I", "upsert", "Alice", 10),
        ("+I", "delete", "Alice", 10),
    ]
    only_inserts = "SELECT * FROM TO_CHANGELOG(input => TABLE (" + joined + "), op_mapping => MAP['INSERT', 'i'])"
    assert run(only_inserts, u=limit, t=scores).shown() == [("+I", "i", "Alice", 10)]


def test_updates_of_an_aggregate_need_no_deletions() -> None:
    counted = "SELECT name, COUNT(*) AS n FROM t GROUP BY name"
    answer = run(BY_CODES.format(counted), t=Rows({"name": TEXT}, [("a",), ("a",)]))
    assert answer.shown() == [("+I", "upsert", "a", 1), ("+I", "upsert", "a", 2)]


def test_columns_of_partition_by_come_first() -> None:
    sql = "SELECT * FROM TO_CHANGELOG(input => TABLE t PARTITION BY score)"
    answer = run(sql, t=Rows({"name": TEXT, "score": BigIntType()}, [("a", 1)]), parallelism=2)
    assert answer.names == ["score", "op", "name"]
    assert answer.shown() == [("+I", 1, "INSERT", "a")]


def test_the_changes_of_an_aggregate_come_as_rows() -> None:
    sql = """SELECT * FROM TO_CHANGELOG(input => TABLE (SELECT a, COUNT(*) AS n FROM t GROUP BY a),
             op_mapping => MAP['INSERT', 'i', 'UPDATE_AFTER', 'u'])"""
    answer = run(sql, t=Rows({"a": BigIntType()}, [(1,), (1,)]))
    assert answer.shown() == [("+I", "i", 1, 1), ("+I", "u", 1, 2)]


def test_names_of_changes_become_changes() -> None:
    rows = [(1, "INSERT", "a"), (1, "UPDATE_BEFORE", "a"), (1, "UPDATE_AFTER", "b"), (1, "DELETE", "b")]
    answer = run("SELECT * FROM FROM_CHANGELOG(input => TABLE t)", t=Rows(EVENTS, rows))
    assert answer.names == ["id", "name"]
    assert answer.shown() == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]


def test_several_codes_may_be_one_change() -> None:
    sql = "SELECT * FROM FROM_CHANGELOG(input => TABLE t, op_mapping => MAP['c, r', 'INSERT', 'd', 'DELETE'])"
    answer = run(sql, t=Rows(EVENTS, [(1, "c", "a"), (2, "r", "b"), (1, "d", "a")]))
    assert answer.shown() == [("+I", 1, "a"), ("+I", 2, "b"), ("-D", 1, "a")]


def test_an_aggregate_takes_the_changes_back() -> None:
    sql = "SELECT COUNT(*) AS n FROM FROM_CHANGELOG(input => TABLE t)"
    rows = [(1, "INSERT", "a"), (2, "INSERT", "a"), (1, "DELETE", "a")]
    assert run(sql, t=Rows(EVENTS, rows)).rows() == [(1,)]


@pytest.mark.parametrize("code", ["UNKNOWN", None])
def test_a_code_that_names_no_change_fails_the_job(code: str | None) -> None:
    with pytest.raises(PenstockError, match=f"Received invalid op code '{code}'"):
        run("SELECT * FROM FROM_CHANGELOG(input => TABLE t)", t=Rows(EVENTS, [(1, "INSERT", "a"), (1, code, "b")]))


UPSERTS = """SELECT * FROM FROM_CHANGELOG(input => TABLE t PARTITION BY id,
             op_mapping => MAP['c', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE'])"""
UPSERT_ROWS = [(1, "c", "a"), (1, "u", "b"), (1, "d", "b")]


def test_updates_without_the_rows_as_they_were_get_these_by_their_key() -> None:
    found = run(UPSERTS, t=Rows(EVENTS, UPSERT_ROWS)).shown()
    assert found == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]


def test_nobody_works_out_rows_as_they_were_for_those_who_do_not_ask() -> None:
    found = run(UPSERTS, wants_before=False, t=Rows(EVENTS, UPSERT_ROWS)).shown()
    assert found == [("+I", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]


def test_a_changelog_goes_there_and_back() -> None:
    sql = "SELECT * FROM FROM_CHANGELOG(input => TABLE (SELECT * FROM TO_CHANGELOG(input => TABLE t)))"
    assert run(sql, t=COUNTS).changes == COUNTS.changes()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("TO_CHANGELOG(TABLE t, DESCRIPTOR(a, b))", "The descriptor for argument 'op' must contain exactly one"),
        ("TO_CHANGELOG(TABLE t, op_mapping => MAP['INSERT, DELETE', 'A', 'DELETE', 'B'])", "Duplicate.*'DELETE'"),
        ("TO_CHANGELOG(TABLE t, op_mapping => MAP['UPSERT', 'A'])", "Unknown change operation: 'UPSERT'"),
        ("TO_CHANGELOG(TABLE t, op_mapping => 'INSERT')", "must be a constant MAP literal"),
        ("TO_CHANGELOG(TABLE t, code => 'c')", "no argument 'code'"),
        ("TO_CHANGELOG(op => DESCRIPTOR(a))", "takes a table for argument 'input'"),
        ("TO_CHANGELOG(TABLE t, op => DESCRIPTOR(a), op => DESCRIPTOR(b))", "argument 'op' is there twice"),
        ("FROM_CHANGELOG(TABLE t, DESCRIPTOR(kind))", "The op column 'kind' does not exist"),
        ("FROM_CHANGELOG(TABLE t, DESCRIPTOR(id))", "must be of STRING type"),
        ("FROM_CHANGELOG(TABLE t PARTITION BY op)", "'op' cannot be one of the columns of PARTITION BY"),
        ("FROM_CHANGELOG(TABLE t, op_mapping => MAP['c', 'INSERT', 'r', 'INSERT'])", "Duplicate.*'c, r', 'INSERT'"),
        ("FROM_CHANGELOG(TABLE t, op_mapping => MAP['c, d', 'INSERT', 'd', 'DELETE'])", "Duplicate code: 'd'"),
        ("FROM_CHANGELOG(TABLE t, op_mapping => MAP['c', 'UPSERT'])", "Unknown change operation: 'UPSERT'"),
        ("FROM_CHANGELOG(TABLE t, op_mapping => MAP['u', 'UPDATE_AFTER'])", "must include UPDATE_BEFORE"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: str, reason: str) -> None:
    manager = manager_of("CREATE TABLE t (id INT, op STRING, name STRING)")
    with pytest.raises(ValidationError, match=reason):
        plan_query(f"SELECT * FROM {call}", manager)


def test_a_time_for_the_output_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="argument 'on_time' of TO_CHANGELOG"):
        plan_query("SELECT * FROM TO_CHANGELOG(TABLE orders, on_time => DESCRIPTOR(ts))")


def test_rows_that_change_are_no_input_of_from_changelog() -> None:
    with pytest.raises(ValidationError, match="FROM_CHANGELOG doesn't support consuming update and delete changes"):
        run("SELECT * FROM FROM_CHANGELOG(TABLE t, DESCRIPTOR(name))", t=COUNTS)


def test_plans_show_the_codes() -> None:
    assert planned(
        "SELECT * FROM TO_CHANGELOG(TABLE customers PARTITION BY city, op_mapping => MAP['INSERT', 'i'])"
    ) == (
        "Project(select=[city, op, name, since])\n"
        "  ToChangelog(partitionBy=[city], op=[op], op_mapping=[INSERT=i])\n"
        "    Scan(table=[customers], fields=[name, city, since])"
    )
