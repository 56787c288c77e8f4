"""Statements that differ by a word, and whether Flink's parser takes them."""

from __future__ import annotations

import pytest

from penstock.sql.parser import SqlParserError, parse_statement, to_sql
from penstock.sql.parser.statements import QueryStatement

TAKEN = (
    "SELECT EXISTS (a), INTERVAL a DAY, INTERVAL 2 DAY, NEXT(a, 1), PERIOD (a, b), CURRENT VALUE FOR s FROM t",
    "SELECT ARRAY_AGG(DISTINCT a IGNORE NULLS ORDER BY b), f(a) IGNORE NULLS WITHIN GROUP (ORDER BY b) FROM t",
    "SELECT SUBSTRING(a FROM 1, 2), CEIL(a TO foo), EXTRACT(WEEK(MONDAY) FROM a), ROW(SELECT 1), x'01' '02' FROM t",
    "SELECT * FROM t PIVOT (SUM(a) AS s FOR (b, c) IN ((1, 2) AS x)) AS p",
    "SELECT * FROM t UNPIVOT INCLUDE NULLS (a FOR b IN (c AS 'x', d))",
    "SELECT * FROM t TABLESAMPLE BERNOULLI(1.5) REPEATABLE(-3)",
    "SELECT * FROM UNNEST((SELECT a FROM t))",
    "DESCRIBE TABLE a",
    "DESCRIBE CONNECTION a",
    "DESCRIBE SELECT 1",
    "DROP SYSTEM FUNCTION a",
    "REPLACE TEMPORARY TABLE t AS SELECT 1",
    "ALTER MATERIALIZED TABLE a SET REFRESH_MODE = FULL",
    "CREATE MATERIALIZED TABLE t START_MODE = FROM_BEGINNING AS SELECT 1",
    "CREATE TABLE t (a INT) WITH ('a' = 'b' 'c')",
)
REFUSED = (
    *(f"SELECT {word} FROM t" for word in ("COMMENT", "HASH", "VIEWS", "FUNCTIONS", "MODULES", "WATERMARK", "DOT")),
    *(
        "SELECT a != b",
        "SELECT a AT TIME ZONE 'UTC'",
        "SELECT a COLLATE b",
        "SELECT a.table",
        "SELECT COUNT(DISTINCT *)",
    ),
    *("SELECT CAST(a AS INT NOT NULL)", "SELECT ROW()", "SELECT * + 1", "SELECT f(a ORDER BY b)", "SELECT f(*, a)"),
    *("SELECT TRIM(a, b)", "SELECT SUBSTRING(a)", "SELECT JSON_OBJECT('a', 'b')", "SELECT DAY(a)", "SELECT ANY(a)"),
    *("SELECT 1 MINUS SELECT 2", "SELECT a FROM t OFFSET 1 LIMIT 2", "SELECT a FROM (t)", "SELECT a FROM TABLE t"),
    *("SELECT a FROM t LEFT SEMI JOIN u ON b", "SELECT a FROM t, LATERAL f(a)", "SELECT a FROM (t JOIN u ON b) c"),
    "SELECT SUM(a) OVER (ORDER BY b GROUPS 1 PRECEDING) FROM t",
    "SELECT a FROM t MATCH_RECOGNIZE (PATTERN (A))",
    *(
        "SHOW CATALOGS FROM a",
        "SHOW TABLES ILIKE 'a'",
        "SHOW JARS LIKE 'a'",
        "STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
    ),
    *("DROP TABLE a CASCADE", "DROP TEMPORARY SYSTEM TABLE a", "EXECUTE SHOW TABLES", "COMPILE PLAN 'a' FOR SELECT 1"),
    *(
        "EXPLAIN CHANGELOG_MODE, CHANGELOG_MODE SELECT 1",
        "EXPLAIN CREATE TABLE a (b INT)",
        "INSERT INTO TABLE a SELECT 1",
    ),
    *("CREATE CATALOG a.b", "CREATE OR ALTER TABLE a (b INT)", "CREATE TABLE a (b INT) DISTRIBUTED"),
    *("CREATE TABLE a LIKE b ()", "CREATE TABLE a (b INT, WATERMARK FOR b AS c, WATERMARK FOR b AS c)"),
    *("CREATE TABLE a (b INT) WITH ('c' = 'd',)", "CREATE FUNCTION a AS 'b' LANGUAGE PYTHON USING ARTIFACT 'c'"),
    *("ALTER TABLE a MODIFY b COMMENT 'c'", "ALTER DATABASE a RESET ('b')", "ALTER CATALOG a RENAME TO b"),
    *("INSERT INTO a PARTITION (b = c) SELECT 1", "STOP JOB 'a' WITH DRAIN", "CALL f(*)"),
)


@pytest.mark.parametrize("sql", TAKEN)
def test_taken(sql: str) -> None:
    found = parse_statement(sql)
    if isinstance(found, QueryStatement):
        assert parse_statement(to_sql(found.query)) == found


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(sql: str) -> None:
    with pytest.raises(SqlParserError):
        parse_statement(sql)
