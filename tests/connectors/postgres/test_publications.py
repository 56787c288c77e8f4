"""Publications that exist: the source checks what they give before it reads the table."""

from __future__ import annotations

import re

import pytest
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.test_cdc import PEOPLE, Following, builder, kinds

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.cdc.source import PostgresSourceBuilder

pytestmark = pytest.mark.slow

PARTITIONED = """
    CREATE TABLE people (id int PRIMARY KEY, name text) PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF people FOR VALUES FROM (0) TO (10);
    CREATE TABLE high PARTITION OF people FOR VALUES FROM (10) TO (100);
    ALTER TABLE people REPLICA IDENTITY FULL;
    ALTER TABLE low REPLICA IDENTITY FULL; ALTER TABLE high REPLICA IDENTITY FULL;
    INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 20) n
"""
CHANGES = """
    INSERT INTO {0} VALUES (9, 'new') ON CONFLICT (id) DO UPDATE SET name = 'new';
    UPDATE {0} SET name = 'x' WHERE id = 1; DELETE FROM {0} WHERE id = 2
"""


def with_publication(database: Database, table: str = "people") -> PostgresSourceBuilder:
    return builder(database, table).publication_name("given")


def refused(made: PostgresSourceBuilder) -> str:
    """The error, before any row was read and before a slot was made."""
    cluster = Following(made.build())
    with pytest.raises(ConfigurationError, match="given") as raised:
        cluster.follow(lambda: False)
    assert cluster.all_values == []
    return str(raised.value)


def remedy_of(error: str) -> str:
    """The statements that the error has."""
    return error.partition("execute ")[2].partition(", or")[0]


@pytest.mark.parametrize(
    ("table", "statement", "text"),
    [
        pytest.param("people", "FOR ALL TABLES", "names of its partitions", id="partitions"),
        pytest.param("people", "FOR TABLE people", "names of its partitions", id="partitions of a table"),
        pytest.param(
            "plain", "FOR TABLE plain WITH (publish = 'insert')", "update and delete and truncate", id="kinds"
        ),
        pytest.param("plain", "FOR TABLE plain WITH (publish = 'insert, update, delete')", "truncate", id="truncate"),
        pytest.param("plain", "FOR TABLE plain WHERE (id > 1)", r"\(id > 1\)", id="rows"),
        pytest.param("plain", "FOR TABLE plain (id)", "column name", id="columns"),
        pytest.param("plain", "FOR TABLE people", "does not have table", id="another table"),
    ],
)
def test_a_publication_that_leaves_out_changes_is_refused(
    database: Database, table: str, statement: str, text: str
) -> None:
    """K4: the error names the publication and what it lacks; the statement in it is the remedy."""
    database.execute(f"{PARTITIONED}; {PEOPLE.replace('people', 'plain')}; CREATE PUBLICATION given {statement}")
    if "(id)" in statement:  # the server refuses updates if the list of columns lacks some of a full identity
        database.execute("ALTER TABLE plain REPLICA IDENTITY DEFAULT")
    mode = "upsert" if "(id)" in statement else "all"
    made = with_publication(database, table).changelog_mode(mode)
    error = refused(made)
    assert re.search(text, error)
    assert database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
    database.execute(remedy_of(error))
    cluster = Following(made.build())
    cluster.follow_table(database, table)
    database.execute(CHANGES.format(table))
    cluster.follow_table(database, table)
    cluster.close()


def test_a_partition_is_not_read_where_its_root_is_published(database: Database) -> None:
    database.execute(PARTITIONED + "; CREATE PUBLICATION given FOR ALL TABLES WITH (publish_via_partition_root = true)")
    assert "read people" in refused(with_publication(database, "low"))
    cluster = Following(with_publication(database).build())
    cluster.follow_table(database)
    database.execute(CHANGES.format("people"))
    cluster.follow_table(database)
    cluster.close()


def test_an_incomplete_publication_is_taken_on_request(database: Database) -> None:
    database.execute(f"{PEOPLE}; CREATE PUBLICATION given FOR TABLE people WHERE (id > 40) WITH (publish = 'insert')")
    cluster = Following(with_publication(database).allow_incomplete_publication().build())
    cluster.follow_table(database)
    count = len(cluster.all_values)
    database.execute("UPDATE people SET name = 'x'; INSERT INTO people VALUES (0, 'left out'), (99, 'given')")
    cluster.follow(lambda: len(cluster.all_values) > count)
    assert kinds(cluster)[count:] == [("INSERT", 99, "given")]
    cluster.close()


def test_skipped_truncates_need_not_be_published(database: Database) -> None:
    database.execute(f"{PEOPLE}; CREATE PUBLICATION given FOR TABLE people WITH (publish = 'insert, update, delete')")
    cluster = Following(with_publication(database).truncate_mode("skip").build())
    cluster.follow_table(database)
    cluster.close()


def test_generated_columns_are_published_where_the_server_needs_it(database: Database) -> None:
    """K4: since 18, the server refuses to update rows if the publication lacks generated columns of a full identity."""
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text, shout text GENERATED ALWAYS AS (upper(name)) STORED); "
        "ALTER TABLE people REPLICA IDENTITY FULL; INSERT INTO people (id, name) VALUES (1, 'a'), (2, 'b')"
    )
    cluster = Following(builder(database).build())
    cluster.follow(lambda: len(cluster.rows) == 2)
    database.execute("UPDATE people SET name = 'c' WHERE id = 1; DELETE FROM people WHERE id = 2")
    cluster.follow(lambda: [tuple(row) for row in cluster.rows.values()] == [(1, "c")])
    cluster.close()


def test_virtual_columns_are_refused_where_the_server_would_refuse_changes(database: Database) -> None:
    (version,) = database.execute("SHOW server_version_num")[0]
    if int(version) < 180_000:
        pytest.skip("only PostgreSQL 18 and later have virtual columns")
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text, shout text GENERATED ALWAYS AS (upper(name)) VIRTUAL); "
        "ALTER TABLE people REPLICA IDENTITY FULL; INSERT INTO people (id, name) VALUES (1, 'a')"
    )
    with pytest.raises(ConfigurationError, match=r"virtual column shout, .* REPLICA IDENTITY DEFAULT"):
        Following(builder(database).build()).follow(lambda: False)
    database.execute("UPDATE people SET name = 'b'; ALTER TABLE people REPLICA IDENTITY DEFAULT")
    cluster = Following(builder(database).changelog_mode("upsert").build())
    cluster.follow(lambda: len(cluster.rows) == 1)
    database.execute("UPDATE people SET name = 'c'")
    cluster.follow(lambda: cluster.rows[1]["name"] == "c")
    cluster.close()


def test_a_publication_without_generated_columns_is_refused(database: Database) -> None:
    (version,) = database.execute("SHOW server_version_num")[0]
    if int(version) < 180_000:
        pytest.skip("only PostgreSQL 18 and later publish generated columns")
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text, shout text GENERATED ALWAYS AS (upper(name)) STORED); "
        "ALTER TABLE people REPLICA IDENTITY FULL; CREATE PUBLICATION given FOR TABLE people"
    )
    error = refused(with_publication(database))
    database.execute(remedy_of(error))
    cluster = Following(with_publication(database).build())
    database.execute("INSERT INTO people (id, name) VALUES (1, 'a'); UPDATE people SET name = 'b'")
    cluster.follow(lambda: len(cluster.rows) == 1)
    cluster.close()


def test_tables_that_inherit_are_refused(database: Database) -> None:
    """K4: a SELECT has their rows, and the log has their changes by their own names."""
    database.execute(PEOPLE + "; CREATE TABLE more (extra int) INHERITS (people)")
    with pytest.raises(ConfigurationError, match=r"tables inherit from .* \(more\)"):
        Following(builder(database).build()).follow(lambda: False)


def test_a_publication_that_changes_while_the_job_stands_is_refused(database: Database) -> None:
    database.execute(f"{PEOPLE}; CREATE PUBLICATION given FOR TABLE people")
    cluster = Following(with_publication(database).build())
    cluster.follow_table(database)
    state = cluster.snapshot()
    database.execute("ALTER PUBLICATION given SET (publish = 'insert')")
    cluster.restart(state)
    with pytest.raises(ConfigurationError, match="does not publish update and delete"):
        cluster.follow(lambda: False)
    cluster.close()
