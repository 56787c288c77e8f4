"""Statements that make, change, drop and show what has a name."""

from typing import Any

import pytest
from tests.table.api.recording import environment, read_names, read_rows

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment

ORDERS = """
CREATE TABLE orders (
    id BIGINT NOT NULL COMMENT 'who',
    `name` STRING,
    ts TIMESTAMP(3),
    text_id AS CAST(id AS STRING),
    origin STRING METADATA FROM 'src' VIRTUAL,
    WATERMARK FOR ts AS ts,
    PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'what was ordered' PARTITIONED BY (`name`) WITH ('connector' = 'datagen', 'rows' = '3')
"""


@pytest.fixture(name="env")
def make_environment() -> TableEnvironment:
    return environment(None, ORDERS)


# --- tables and views ------------------------------------------------------------------------------------------------


def test_describe_says_all_of_a_column(env: TableEnvironment) -> None:
    result = env.execute_sql("DESCRIBE orders")
    assert result.get_resolved_schema().get_column_names() == [
        *("name", "type", "null", "key", "extras", "watermark", "comment")
    ]
    assert [tuple(row) for row in result.collect()] == [
        ("id", "BIGINT", False, "PRI(id)", None, None, "who"),
        ("name", "STRING", True, None, None, None, None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, None, "`ts`", None),
        ("text_id", "STRING", False, None, "AS CAST(`id` AS STRING)", None, None),
        ("origin", "STRING", True, None, "METADATA FROM 'src' VIRTUAL", None, None),
    ]


def test_show_columns_shows_those_that_are_like_a_pattern(env: TableEnvironment) -> None:
    assert read_names(env, "SHOW COLUMNS FROM orders LIKE '%i_'") == ["id", "text_id", "origin"]
    assert read_names(env, "SHOW COLUMNS IN orders NOT LIKE '%i%'") == ["name", "ts"]


def test_show_create_table_makes_the_same_table_again(env: TableEnvironment) -> None:
    (text,) = read_names(env, "SHOW CREATE TABLE orders")
    assert text == (
        "CREATE TABLE `default_catalog`.`default_database`.`orders` (\n"
        "  `id` BIGINT NOT NULL COMMENT 'who',\n"
        "  `name` VARCHAR(2147483647),\n"
        "  `ts` TIMESTAMP(3),\n"
        "  `text_id` AS CAST(`id` AS STRING),\n"
        "  `origin` VARCHAR(2147483647) METADATA FROM 'src' VIRTUAL,\n"
        "  WATERMARK FOR `ts` AS `ts`,\n"
        "  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED\n"
        ")\n"
        "COMMENT 'what was ordered'\n"
        "PARTITIONED BY (`name`)\n"
        "WITH (\n  'connector' = 'datagen',\n  'rows' = '3'\n)\n"
    )
    before = read_rows(env, "DESCRIBE orders")
    env.execute_sql("DROP TABLE orders")
    env.execute_sql(str(text))
    assert read_rows(env, "DESCRIBE orders") == before


def test_types_are_shown_as_catalogs_write_them(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TABLE nested (r ROW<a STRING NOT NULL, b ARRAY<BYTES>>, m MAP<STRING, INT> NOT NULL)")
    (text,) = read_names(env, "SHOW CREATE TABLE nested")
    assert "`r` ROW<`a` VARCHAR(2147483647) NOT NULL, `b` ARRAY<VARBINARY(2147483647)>>,\n" in str(text)
    assert "`m` MAP<VARCHAR(2147483647), INT> NOT NULL\n" in str(text)


def test_a_table_may_be_like_another(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TABLE wider (extra INT) WITH ('rows' = '4') LIKE orders (EXCLUDING PARTITIONS)")
    assert read_names(env, "DESCRIBE wider") == ["id", "name", "ts", "text_id", "origin", "extra"]
    with pytest.raises(ValidationError, match=r"Source table .* of the LIKE clause not found"):
        env.execute_sql("CREATE TABLE other (extra INT) LIKE missing")


def test_views_are_queries(env: TableEnvironment) -> None:
    env.execute_sql("CREATE VIEW v (a, b) COMMENT 'w' AS SELECT id, `name` FROM orders")
    assert read_names(env, "SHOW VIEWS") == ["v"]
    assert read_names(env, "SHOW TABLES") == ["orders", "v"]
    assert read_names(env, "SHOW CREATE VIEW v") == [
        "CREATE VIEW `default_catalog`.`default_database`.`v` (\n  `a`,\n  `b`\n)\nCOMMENT 'w'\n"
        "AS SELECT id, `name` FROM orders\n"
    ]
    env.execute_sql("ALTER VIEW v AS SELECT `name` FROM orders")
    assert read_names(env, "DESCRIBE v") == ["name"]
    env.execute_sql("ALTER VIEW v RENAME TO w")
    assert env.list_views() == ["w"]
    env.execute_sql("DROP VIEW w")
    with pytest.raises(ValidationError, match="VIEW definition and input fields not match"):
        env.execute_sql("CREATE VIEW v (a, b) AS SELECT id FROM orders")


def test_temporary_tables_hide_others(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TEMPORARY TABLE orders (other INT)")
    assert read_names(env, "DESCRIBE orders") == ["other"]
    assert env.list_temporary_tables() == ["orders"]
    with pytest.raises(ValidationError, match="Drop it first before removing the permanent table"):
        env.execute_sql("DROP TABLE orders")
    env.execute_sql("DROP TEMPORARY TABLE orders")
    env.execute_sql("DROP TABLE orders")
    assert read_names(env, "SHOW TABLES") == []
    env.execute_sql("DROP TABLE IF EXISTS orders")
    with pytest.raises(ValidationError, match="does not exist"):
        env.execute_sql("DROP TABLE orders")


# --- ALTER TABLE -----------------------------------------------------------------------------------------------------


def test_columns_come_where_they_are_put(env: TableEnvironment) -> None:
    env.execute_sql("ALTER TABLE orders ADD (a INT FIRST, b AS CAST(a AS STRING) AFTER id, c INT COMMENT 'last')")
    assert read_names(env, "DESCRIBE orders") == ["a", "id", "b", "name", "ts", "text_id", "origin", "c"]
    env.execute_sql("ALTER TABLE orders MODIFY c BIGINT NOT NULL AFTER a")
    assert read_rows(env, "DESCRIBE orders")[1] == ("c", "BIGINT", False, None, None, None, "last")
    env.execute_sql("ALTER TABLE orders RENAME c TO d")
    env.execute_sql("ALTER TABLE orders DROP (a, b)")
    assert read_names(env, "DESCRIBE orders") == ["d", "id", "name", "ts", "text_id", "origin"]


def test_keys_watermarks_options_and_names_change(env: TableEnvironment) -> None:
    env.execute_sql("ALTER TABLE orders DROP PRIMARY KEY")
    env.execute_sql("ALTER TABLE orders ADD CONSTRAINT k PRIMARY KEY (id, `name`) NOT ENFORCED")
    env.execute_sql("ALTER TABLE orders DROP CONSTRAINT k")
    env.execute_sql("ALTER TABLE orders DROP WATERMARK")
    env.execute_sql("ALTER TABLE orders ADD DISTRIBUTION BY HASH(id) INTO 4 BUCKETS")
    env.execute_sql("ALTER TABLE orders SET ('rows' = '4', 'more' = 'x')")
    env.execute_sql("ALTER TABLE orders RESET ('more')")
    env.execute_sql("ALTER TABLE orders RENAME TO renamed")
    (text,) = read_names(env, "SHOW CREATE TABLE renamed")
    assert "WATERMARK" not in str(text)
    assert "CONSTRAINT" not in str(text)
    assert "DISTRIBUTED BY HASH(`id`) INTO 4 BUCKETS\n" in str(text)
    assert "  'rows' = '4'\n)" in str(text)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("ADD id INT", "Try to add a column `id` which already exists in the table."),
        ("ADD a INT AFTER b", "Referenced column `b` by 'AFTER' does not exist in the table."),
        ("ADD PRIMARY KEY (ts) NOT ENFORCED", r"already defined the primary key constraint \[`id`\]"),
        ("ADD WATERMARK FOR ts AS ts", "already defined the watermark strategy"),
        ("MODIFY a INT", "Try to modify a column `a` which does not exist in the table."),
        ("MODIFY DISTRIBUTION BY (id)", "does not define any distribution"),
        ("MODIFY ts INT", "Invalid data type of time field for watermark definition"),
        ("DROP a", "The column `a` does not exist in the base table."),
        ("DROP (ts, ts)", "Duplicate column `ts`."),
        ("DROP ts", "The column `ts` is referenced by watermark expression."),
        ("DROP id", "The column `id` is referenced by computed column `text_id`."),
        ("DROP (id, text_id)", "The column `id` is used as the primary key."),
        ("DROP `name`", "The column `name` is used as the partition keys."),
        ("DROP CONSTRAINT k", r"constraint named 'k'. Available constraint name: \['PK_id'\]."),
        ("RENAME id TO ts", "The column `ts` already existed in table schema."),
        ("RESET ()", "ALTER TABLE RESET does not support empty key"),
        ("RESET ('connector')", "ALTER TABLE RESET does not support changing 'connector'"),
    ],
)
def test_what_the_table_still_needs_stays(env: TableEnvironment, action: str, message: str) -> None:
    before = read_names(env, "SHOW CREATE TABLE orders")
    with pytest.raises(ValidationError, match=f"Failed to execute ALTER TABLE statement.\n.*{message}"):
        env.execute_sql(f"ALTER TABLE orders {action}")
    assert read_names(env, "SHOW CREATE TABLE orders") == before


def test_only_tables_of_catalogs_are_altered(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TEMPORARY TABLE t (a INT)")
    with pytest.raises(ValidationError, match="doesn't exist or is a temporary table"):
        env.execute_sql("ALTER TABLE t ADD b INT")
    env.execute_sql("ALTER TABLE IF EXISTS missing ADD b INT")
    env.execute_sql("CREATE VIEW v AS SELECT * FROM orders")
    with pytest.raises(ValidationError, match="ALTER TABLE for a view is not allowed"):
        env.execute_sql("ALTER TABLE v ADD b INT")


# --- catalogs and databases ------------------------------------------------------------------------------------------


def test_catalogs_and_databases(env: TableEnvironment) -> None:
    env.execute_sql("CREATE CATALOG c COMMENT 'x' WITH ('type' = 'generic_in_memory', 'default-database' = 'first')")
    env.execute_sql("CREATE CATALOG IF NOT EXISTS c WITH ('type' = 'generic_in_memory')")
    assert read_names(env, "SHOW CATALOGS") == ["c", "default_catalog"]
    env.execute_sql("CREATE DATABASE c.d COMMENT 'y' WITH ('a' = 'b')")
    env.execute_sql("ALTER DATABASE c.d SET ('a' = 'c')")
    assert read_names(env, "SHOW DATABASES FROM c LIKE 'd%'") == ["d"]
    assert read_names(env, "SHOW CREATE DATABASE c.d") == [
        "CREATE DATABASE `c`.`d`\nCOMMENT 'y'\nWITH (\n  'a' = 'c'\n)"
    ]
    env.execute_sql("USE c.d")
    assert read_names(env, "SHOW CURRENT CATALOG") == ["c"]
    assert read_names(env, "SHOW CURRENT DATABASE") == ["d"]
    env.execute_sql("CREATE TABLE t (a INT)")
    assert read_names(env, "SHOW TABLES FROM c.d") == ["t"]
    env.execute_sql("USE CATALOG default_catalog")
    with pytest.raises(ValidationError, match="is not empty"):
        env.execute_sql("DROP DATABASE c.d")
    env.execute_sql("DROP DATABASE c.d CASCADE")
    assert ("option:default-database", "first") in read_rows(env, "DESCRIBE CATALOG EXTENDED c")
    env.execute_sql("DROP CATALOG c")
    assert env.list_catalogs() == ["default_catalog"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "CREATE CATALOG c WITH ('type' = 'hive')",
            "there is no type 'hive', but delta, file, generic_in_memory, iceberg, jdbc, spark",
        ),
        ("CREATE CATALOG c WITH ('a' = 'b')", "it needs the option 'type'"),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'a' = 'b')", "Unsupported options found.*: a"),
        ("DROP CATALOG default_catalog", "currently in use"),
        ("DROP DATABASE default_database", "currently in use"),
        ("USE missing", "Database missing does not exist"),
        ("USE CATALOG missing", "Catalog missing does not exist"),
        ("USE MODULES hive", "No module with name 'hive' exists"),
        ("LOAD MODULE core", "A module with name 'core' already exists"),
        ("SHOW CREATE VIEW orders", "SHOW CREATE VIEW is only supported for views"),
        ("DESCRIBE missing", "doesn't exist"),
    ],
)
def test_what_is_not_there_is_named(env: TableEnvironment, sql: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        env.execute_sql(sql)


def test_modules_are_loaded_used_and_unloaded(env: TableEnvironment) -> None:
    """Functions of a module are there while it is used."""

    def listed(what: str) -> list[list[Any]]:
        with env.execute_sql(f"SHOW {what}").collect() as rows:
            return [list(row) for row in rows]

    assert listed("FULL MODULES") == [["core", True]]
    env.execute_sql("LOAD MODULE state")
    assert listed("MODULES") == [["core"], ["state"]]
    assert ["savepoint_metadata"] in listed("FUNCTIONS")
    with pytest.raises(ValidationError, match="A module with name 'state' already exists"):
        env.execute_sql("LOAD MODULE state")
    with pytest.raises(UnsupportedError, match="no module 'hive': Penstock has the functions of 'core', and state"):
        env.execute_sql("LOAD MODULE hive")
    with pytest.raises(ValidationError, match="has no options: hive-version"):
        env.execute_sql("LOAD MODULE state WITH ('hive-version' = '3')")
    env.execute_sql("USE MODULES state, core")
    assert listed("MODULES") == [["state"], ["core"]]
    env.execute_sql("USE MODULES core")
    assert listed("FULL MODULES") == [["core", True], ["state", False]]
    assert ["savepoint_metadata"] not in listed("FUNCTIONS")
    with pytest.raises(ValidationError, match="appears more than once"):
        env.execute_sql("USE MODULES core, core")
    with pytest.raises(UnsupportedError, match="name it, too"):
        env.execute_sql("USE MODULES state")
    env.execute_sql("UNLOAD MODULE state")
    assert listed("FULL MODULES") == [["core", True]]
    with pytest.raises(ValidationError, match="No module with name 'state' exists"):
        env.execute_sql("UNLOAD MODULE state")
    with pytest.raises(UnsupportedError, match="cannot be unloaded"):
        env.execute_sql("UNLOAD MODULE core")


# --- functions, modules, options -------------------------------------------------------------------------------------


def test_functions_are_registered_and_imported_when_they_are_called(env: TableEnvironment) -> None:
    env.execute_sql("CREATE FUNCTION Twice AS 'm.twice' LANGUAGE PYTHON")
    env.execute_sql("CREATE TEMPORARY SYSTEM FUNCTION thrice AS 'm.thrice' LANGUAGE PYTHON")
    assert read_names(env, "SHOW USER FUNCTIONS") == ["thrice", "twice"]
    assert "coalesce" in read_names(env, "SHOW FUNCTIONS")
    assert ("class name", "m.twice") in read_rows(env, "DESCRIBE FUNCTION twice")
    with pytest.raises(ValidationError, match=r"function twice: cannot import 'm\.twice': No module named 'm'"):
        env.sql_query("SELECT twice(1)")
    env.execute_sql("DROP FUNCTION twice")
    env.execute_sql("DROP TEMPORARY SYSTEM FUNCTION thrice")
    assert env.list_user_defined_functions() == []
    env.execute_sql("CREATE FUNCTION f AS 'com.F'")
    assert ("function language", "JAVA") in read_rows(env, "DESCRIBE FUNCTION f")
    with pytest.raises(UnsupportedError, match="function f is written in JAVA, which Penstock does not run"):
        env.sql_query("SELECT f(1)")


def test_there_is_one_module(env: TableEnvironment) -> None:
    env.execute_sql("USE MODULES core")
    assert read_names(env, "SHOW MODULES") == ["core"]
    assert read_rows(env, "SHOW FULL MODULES") == [("core", True)]
    with pytest.raises(UnsupportedError, match="cannot be unloaded"):
        env.execute_sql("UNLOAD MODULE core")


def test_options_are_set_shown_and_reset(env: TableEnvironment) -> None:
    env.execute_sql("SET 'nobody.knows' = 'x'")
    assert ("nobody.knows", "x") in read_rows(env, "SET")
    env.execute_sql("SET 's3.secret-key' = 'quiet'")
    assert ("s3.secret-key", "******") in read_rows(env, "SET")
    assert env.get_config().get("s3.secret-key", "") == "quiet"
    env.execute_sql("RESET 's3.secret-key'")
    assert env.get_config().get("nobody.knows", None) == "x"
    env.execute_sql("SET 'execution.runtime-mode' = 'BATCH'")
    env.execute_sql("RESET 'nobody.knows'")
    assert read_rows(env, "SET") == [("execution.runtime-mode", "BATCH"), ("table.local-time-zone", "UTC")]
    env.execute_sql("RESET")
    assert read_rows(env, "SET") == [("execution.runtime-mode", "STREAMING")]
    with pytest.raises(ValueError, match="there is no time zone 'Mars'"):
        env.execute_sql("SET 'table.local-time-zone' = 'Mars'")


def test_partitions_are_of_partitioned_tables(env: TableEnvironment) -> None:
    assert read_names(env, "SHOW PARTITIONS orders") == []
    env.execute_sql("CREATE TABLE plain (a INT)")
    with pytest.raises(ValidationError, match="is not partitioned"):
        env.execute_sql("SHOW PARTITIONS plain")
