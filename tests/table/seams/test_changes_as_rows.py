"""TO_CHANGELOG and FROM_CHANGELOG: changes as rows with codes, and back."""

from __future__ import annotations

import pytest
from tests.table.seams.streams import changelog, columns_of, environments, rows_of, texts

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.common import RowKind, Types
from penstock.table import ChangelogMode, Schema, StreamTableEnvironment
from penstock.table.data.errors import ValidationError
from penstock.table.expressions import descriptor, map_

INSERT, BEFORE, AFTER, DELETE = RowKind
CHANGES = changelog((INSERT, ("a", 1)), (BEFORE, ("a", 1)), (AFTER, ("a", 5)), (DELETE, ("a", 5)))
WORDS = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])


def with_changes() -> StreamTableEnvironment:
    """An environment with `words`, a table that changes, and `codes`, rows that say what they do."""
    streams, tables = environments()
    tables.create_temporary_view("words", tables.from_changelog_stream(streams.from_collection(CHANGES, WORDS)))
    codes = [
        ("INSERT", "a", 1),
        ("UPDATE_BEFORE", "a", 1),
        ("UPDATE_AFTER", "a", 5),
        ("INSERT", "b", 2),
        ("DELETE", "b", 2),
    ]
    tables.create_temporary_view("codes", tables.from_elements(codes, ["op", "word", "n"]))
    return tables


def test_changes_become_rows() -> None:
    """With a code in front, which says what each was."""
    tables = with_changes()
    table = tables.sql_query("SELECT * FROM TO_CHANGELOG(input => TABLE words)")
    assert columns_of(table) == ["`op` STRING", "`word` STRING", "`n` INT"]
    expected = ["+I[DELETE, a, 5]", "+I[INSERT, a, 1]", "+I[UPDATE_AFTER, a, 5]", "+I[UPDATE_BEFORE, a, 1]"]
    assert rows_of(table) == expected
    assert rows_of(tables.from_path("words").to_changelog()) == expected
    assert "changelogMode=[I]" in table.explain()


def test_codes_are_the_programs() -> None:
    """Several kinds may have one; a kind without any is dropped, and the plan does not ask for it."""
    tables = with_changes()
    mapping = map_("INSERT, UPDATE_AFTER", "false", "DELETE", "true").as_argument("op_mapping")
    table = tables.from_path("words").to_changelog(descriptor("gone").as_argument("op"), mapping)
    assert rows_of(table) == ["+I[false, a, 1]", "+I[false, a, 5]", "+I[true, a, 5]"]
    counts = tables.sql_query("SELECT word, COUNT(*) AS c FROM codes GROUP BY word").to_changelog(mapping)
    assert "Aggregate" in counts.explain()
    assert "[I,UA]" in counts.explain()
    assert rows_of(counts) == [
        "+I[false, a, 1]",
        "+I[false, a, 2]",
        "+I[false, a, 3]",
        "+I[false, b, 1]",
        "+I[false, b, 2]",
    ]


def test_rows_become_changes() -> None:
    """The column with the codes is no column of the table."""
    tables = with_changes()
    table = tables.sql_query("SELECT * FROM FROM_CHANGELOG(input => TABLE codes)")
    assert columns_of(table) == ["`word` STRING", "`n` BIGINT"]
    assert texts(tables.to_changelog_stream(table)) == ["+I[a, 1]", "+I[b, 2]", "+U[a, 5]", "-D[b, 2]", "-U[a, 1]"]
    assert tables.from_path("codes").from_changelog().to_pandas().values.tolist() == [["a", 5]]


def test_codes_of_another_system_become_changes() -> None:
    """With commas between codes that stand for the same."""
    _, tables = environments()
    table = tables.from_elements([(1, "c"), (2, "r"), (1, "d")], ["id", "what"])
    mapping = map_("c, r", "INSERT", "d", "DELETE").as_argument("op_mapping")
    found = table.from_changelog(descriptor("what").as_argument("op"), mapping)
    assert texts(tables.to_changelog_stream(found)) == ["+I[1]", "+I[2]", "-D[1]"]


def test_there_and_back_again() -> None:
    """Is the same table."""
    tables = with_changes()
    back = tables.from_path("words").to_changelog().from_changelog()
    assert rows_of(back) == rows_of(tables.from_path("words"))


def test_an_upsert_changelog_has_the_rows_before_too() -> None:
    """They are remembered by the key."""
    streams, tables = environments()
    rows = changelog((INSERT, ("a", 1)), (AFTER, ("a", 5)), (DELETE, ("a", None)))
    schema = Schema.new_builder().primary_key("word").build()
    table = tables.from_changelog_stream(streams.from_collection(rows, WORDS), schema, ChangelogMode.upsert())
    assert rows_of(table.to_changelog()) == [
        "+I[DELETE, a, 5]",
        "+I[INSERT, a, 1]",
        "+I[UPDATE_AFTER, a, 5]",
        "+I[UPDATE_BEFORE, a, 1]",
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("TO_CHANGELOG(input => TABLE words, op => DESCRIPTOR(a, b))", "must contain exactly one column name"),
        ("TO_CHANGELOG(input => TABLE words, op => DESCRIPTOR(word))", "'word', which is there already"),
        ("TO_CHANGELOG(input => TABLE words, op_mapping => MAP['UPSERT', 'u'])", "Unknown change operation 'UPSERT'"),
        (
            "TO_CHANGELOG(input => TABLE words, op_mapping => MAP['INSERT, DELETE', 'A', 'DELETE', 'B'])",
            "Duplicate change operation in 'op_mapping' of TO_CHANGELOG: DELETE",
        ),
        ("TO_CHANGELOG(input => TABLE words, op_mapping => 'x')", "must be a constant MAP"),
        ("TO_CHANGELOG(input => TABLE words, more_ => 1)", "takes the arguments input, op and op_mapping"),
        ("FROM_CHANGELOG(input => TABLE codes, op => DESCRIPTOR(kind))", "The op column 'kind'.*op, word, n"),
        ("FROM_CHANGELOG(input => TABLE codes, op => DESCRIPTOR(n))", "'n' of FROM_CHANGELOG must be STRING"),
        (
            "FROM_CHANGELOG(input => TABLE codes, op_mapping => MAP['a', 'INSERT', 'a', 'DELETE'])",
            "Duplicate code.*: a",
        ),
        (
            "FROM_CHANGELOG(input => TABLE codes, op_mapping => MAP['a', 'NOTHING'])",
            "Unknown change operation 'NOTHING'",
        ),
    ],
)
def test_arguments_that_do_not_fit(sql: str, message: str) -> None:
    """The error names the argument."""
    with pytest.raises(ValidationError, match=message):
        with_changes().sql_query(f"SELECT * FROM {sql}")


def test_what_is_refused() -> None:
    """Updates without the rows before, partitions, and a table that changes as the input of FROM_CHANGELOG."""
    tables = with_changes()
    mapping = "MAP['c', 'INSERT', 'u', 'UPDATE_AFTER']"
    with pytest.raises(UnsupportedError, match="needs a code for UPDATE_BEFORE"):
        tables.sql_query(f"SELECT * FROM FROM_CHANGELOG(input => TABLE codes, op_mapping => {mapping})")
    with pytest.raises(UnsupportedError, match="takes no PARTITION BY"):
        tables.sql_query("SELECT * FROM TO_CHANGELOG(input => TABLE words PARTITION BY word)")
    changing = tables.sql_query("SELECT word AS op, COUNT(*) AS c FROM codes GROUP BY word").from_changelog()
    with pytest.raises(ValidationError, match="FROM_CHANGELOG doesn't support consuming update changes"):
        changing.execute()


def test_a_code_that_nobody_knows_fails_the_job() -> None:
    """Also NULL."""
    _, tables = environments()
    table = tables.from_elements([("UPSERT", 1)], ["op", "n"])
    with pytest.raises(JobExecutionError, match="Received invalid op code 'UPSERT'"):
        rows_of(table.from_changelog())
