"""K3: nothing that is parsed is ignored: each field of the syntax tree is read when a statement is planned, or refused.

The fields of all nodes are watched while statements are planned. Generic walks over all fields do not count as reading.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final

import pytest
from tests.table.api.recording import Recorder, environment

from penstock.base.errors import PenstockError
from penstock.sql.parser import parse_script, statements, syntax
from penstock.sql.parser import syntax as relations
from penstock.table import TableEnvironment

MODULES: Final = (syntax, relations, statements)
#: `node.field`, and a field in a pattern of `match`; the built-in getattr, which walks use, is a call
READING: Final = {opcode.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "MATCH_CLASS")}
#: a field: the class of its node, its name, and the text of its value
Read = tuple[str, str, str]

TABLES: Final = (
    "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), r ROW<x INT>, l ARRAY<INT>, m MAP<STRING, INT>, "
    "p AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')",
    "CREATE TABLE u (a INT, c INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'datagen')",
    "CREATE TABLE parts (a INT, b STRING) PARTITIONED BY (b) WITH ('connector' = 'filesystem')",
    "CREATE VIEW v AS SELECT a FROM t",
)

#: Statements whose clauses are all read.
TAKEN: Final = (
    # models
    "CREATE TEMPORARY MODEL IF NOT EXISTS m INPUT (a INT COMMENT 'x') OUTPUT (b INT) COMMENT 'c' WITH ('a' = 'b')",
    "CREATE OR REPLACE MODEL m INPUT (a INT) OUTPUT (b INT) WITH ('a' = 'b')",
    "ALTER MODEL IF EXISTS given RENAME TO n",
    "ALTER MODEL IF EXISTS given RESET ('k')",
    "DROP TEMPORARY MODEL IF EXISTS m",
    # queries
    "SELECT DISTINCT a AS x, t.*, t.r.x, (r).x, l[1] FROM t /*+ OPTIONS('rows-per-second' = '1') */ AS t WHERE a > 1",
    "SELECT a, COUNT(*) FROM t GROUP BY DISTINCT GROUPING SETS (ROLLUP (a), CUBE (a), (a)) HAVING COUNT(*) > 1",
    "SELECT /*+ STATE_TTL('t' = '1d') */ a, COUNT(*) FROM t GROUP BY a",
    "SELECT /*+ BROADCAST(u) */ t.a FROM t JOIN u ON t.a = u.a",
    "SELECT * FROM t LEFT JOIN u USING (a) NATURAL JOIN (SELECT a FROM u) AS w (a)",
    "SELECT * FROM (t JOIN u ON t.a = u.a)",
    "SELECT * FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a) AS s",
    "SELECT * FROM t JOIN u FOR SYSTEM_TIME AS OF t.p AS w ON t.a = w.a",
    "SELECT * FROM t JOIN u FOR SYSTEM_TIME AS OF t.p USING (a)",
    "SELECT * FROM t NATURAL LEFT JOIN u FOR SYSTEM_TIME AS OF t.p AS w",
    "SELECT s.x, n.y FROM t AS s (x, b, ts, r, l, m, p), (SELECT c FROM u) AS n (y)",
    "SELECT k, y FROM t MATCH_RECOGNIZE (PARTITION BY b ORDER BY ts MEASURES A.a AS x AFTER MATCH SKIP PAST LAST ROW "
    "PATTERN (A B{2,3}) DEFINE A AS A.a = 1) AS m (k, y)",
    "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' WEEK)) AS s (a, b, c, d, e, f, g, h, i, j)",
    "SELECT a FROM t WHERE b SIMILAR TO 'x' OR b NOT LIKE 'y' OR b IN (SELECT 'x' FROM u)",
    "SELECT * FROM t, UNNEST(l) WITH ORDINALITY AS s (e, o)",
    "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
    "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY b, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
    "SELECT * FROM TABLE(TUMBLE(DATA => (SELECT * FROM t), TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' MINUTE))",
    "SELECT a, SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "SELECT a, SUM(a) OVER (w ORDER BY ts RANGE UNBOUNDED PRECEDING EXCLUDE NO OTHERS) FROM t WINDOW w AS "
    "(PARTITION BY b)",
    "SELECT a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY b ORDER BY ts DESC NULLS LAST) = 1",
    "SELECT a FROM t ORDER BY ts",
    "SELECT a FROM t ORDER BY a DESC NULLS FIRST OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY",
    "WITH w (x) AS (SELECT a FROM t) SELECT x FROM w UNION ALL TABLE u2",
    "SELECT a FROM t INTERSECT SELECT a FROM u",
    "VALUES (1, 'a'), (2, NULL)",
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY b ORDER BY ts MEASURES A.a AS x, LAST(B.a) AS y ONE ROW PER MATCH "
    "AFTER MATCH SKIP TO LAST B PATTERN (A B+? C{1,2}) WITHIN INTERVAL '1' HOUR DEFINE B AS B.a > 1) AS m",
    # expressions
    "SELECT NULL, TRUE, 1, 'x', X'0F', DATE '2024-01-01', INTERVAL -'1-2' YEAR TO MONTH, INTERVAL '1.5' SECOND(2, 3)",
    "SELECT a FROM t WHERE a NOT BETWEEN SYMMETRIC 1 AND 2 AND a NOT IN (1, 2) AND b NOT LIKE 'x!%' ESCAPE '!'",
    "SELECT a FROM t WHERE a IN (SELECT a FROM u) AND EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AND a > SOME (1, 2)",
    "SELECT CAST(a AS STRING), TRY_CAST(b AS INT), CASE a WHEN 1 THEN 'x' ELSE 'y' END, ROW(a, b), ARRAY[1] FROM t",
    "SELECT EXTRACT(YEAR FROM ts), FLOOR(ts TO DAY), TRIM(LEADING 'x' FROM b), (SELECT MAX(c) FROM u) FROM t",
    "SELECT COUNT(DISTINCT a) FILTER (WHERE a > 1), ARRAY_AGG(b IGNORE NULLS), JSON_ARRAYAGG(b ABSENT ON NULL) FROM t",
    "SELECT JSON_VALUE(b, '$.x' RETURNING INT NULL ON EMPTY) FROM t",
)
TAKEN_STATEMENTS: Final = (
    "INSERT INTO sink PARTITION (b = 'x') (a) SELECT a FROM t",
    "INSERT OVERWRITE sink /*+ OPTIONS('x' = 'y') */ SELECT a, b FROM t",
    "INSERT INTO keyed SELECT a, c FROM u ON CONFLICT DO DEDUPLICATE",
    "EXECUTE STATEMENT SET BEGIN INSERT INTO sink SELECT a, b FROM t; INSERT INTO keyed SELECT a, c FROM u; END",
    "EXPLAIN ESTIMATED_COST SELECT 1",
    "CREATE TEMPORARY TABLE IF NOT EXISTS n (a INT NOT NULL COMMENT 'x', b AS a + 1 COMMENT 'y', "
    "c STRING METADATA FROM 'k' VIRTUAL, ts TIMESTAMP(3), CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED, "
    "WATERMARK FOR ts AS ts) COMMENT 'z' DISTRIBUTED BY HASH (a) INTO 4 BUCKETS PARTITIONED BY (a) "
    "WITH ('connector' = 'x'); SHOW CREATE TABLE n",
    "CREATE TABLE n (k INT PRIMARY KEY NOT ENFORCED)",
    "CREATE TABLE n (z INT) WITH ('x' = 'y') LIKE parts (INCLUDING ALL EXCLUDING OPTIONS)",
    "CREATE TABLE n WITH ('connector' = 'blackhole') AS SELECT a FROM t",
    "CREATE TEMPORARY VIEW IF NOT EXISTS n (x) COMMENT 'z' AS SELECT a FROM t",
    "ALTER TABLE IF EXISTS parts ADD (x INT FIRST)",
    "ALTER TABLE parts ADD (x INT FIRST, y INT COMMENT 'c' AFTER a)",
    "ALTER TABLE parts MODIFY a BIGINT",
    "ALTER TABLE parts RENAME a TO x",
    "ALTER TABLE parts SET ('x' = 'y')",
    "ALTER TABLE parts RESET ('x')",
    "ALTER TABLE parts DROP (a)",
    "ALTER TABLE parts RENAME TO others",
    "ALTER TABLE bare ADD WATERMARK FOR ts AS ts",
    "ALTER TABLE bare ADD PRIMARY KEY (a) NOT ENFORCED",
    "ALTER TABLE bare ADD DISTRIBUTION BY HASH (a) INTO 3 BUCKETS; SHOW CREATE TABLE bare",
    "CREATE TABLE n (a INT CONSTRAINT k PRIMARY KEY NOT ENFORCED); SHOW CREATE TABLE n",
    "CREATE TABLE n (a) WITH ('connector' = 'blackhole') AS SELECT a FROM t",
    "CREATE OR REPLACE TABLE sink WITH ('connector' = 'blackhole') AS SELECT a FROM t",
    "CREATE TABLE n WITH ('connector' = 'x') AS SELECT a FROM t; "
    "REPLACE TABLE n WITH ('connector' = 'blackhole') AS SELECT a FROM t",
    "CREATE OR REPLACE VIEW v AS SELECT b FROM t",
    "ALTER CATALOG default_catalog SET ('a' = 'b')",
    "ALTER CATALOG default_catalog RESET ('a')",
    "ALTER CATALOG default_catalog COMMENT 'x'",
    "CREATE FUNCTION f AS 'builtins.len' LANGUAGE PYTHON; ALTER FUNCTION IF EXISTS f AS 'builtins.abs' LANGUAGE PYTHON",
    "SHOW PARTITIONS parts",
    "ALTER VIEW v RENAME TO w",
    "ALTER VIEW v AS SELECT b FROM t",
    "CREATE TEMPORARY FUNCTION IF NOT EXISTS f AS 'builtins.len' LANGUAGE PYTHON",
    "CREATE TEMPORARY SYSTEM FUNCTION f AS 'builtins.len' LANGUAGE PYTHON",
    "CREATE CATALOG IF NOT EXISTS n COMMENT 'x' WITH ('type' = 'generic_in_memory')",
    "CREATE DATABASE IF NOT EXISTS n COMMENT 'x' WITH ('a' = 'b')",
    "ALTER DATABASE d SET ('a' = 'b')",
    "DROP TEMPORARY VIEW IF EXISTS n",
    "DROP TABLE IF EXISTS n",
    "DROP DATABASE d CASCADE",
    "DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f",
    "USE CATALOG default_catalog",
    "USE d",
    "SHOW TABLES FROM default_database NOT LIKE 'x%'",
    "SHOW TABLES LIKE 'x%'",
    "SHOW CATALOGS ILIKE 'x%'",
    "SHOW CREATE TABLE t",
    "DESCRIBE EXTENDED t",
    "DESCRIBE t",
    "SET 'parallelism.default' = '2'",
    "RESET",
    "RESET 'parallelism.default'",
)

#: Statements with semicolons inside.
SCRIPTS: Final = {sql for sql in TAKEN_STATEMENTS if sql.startswith("EXECUTE STATEMENT SET")}

#: Classes of which there are only others, or which no text has.
BASES: Final = {"Relation", "Expression", "Query", "Statement", "TypedLiteral"}

#: What needs no reading, and why.
UNREAD: Final = {
    ("Explain", "runs"): "EXPLAIN ANALYZE needs a job: tests/table/api/test_analyze.py",
    ("Call", "path"): "built-in functions go by their name alone",
    ("Describe", "is_extended"): "DESCRIBE EXTENDED of a table shows the same, as in Flink",
    ("CreateFunction", "is_temporary"): "system functions are temporary",
    ("Drop", "is_temporary"): "system functions are temporary",
    ("AlterTable", "if_exists"): "says what happens where there is no table",
    **{
        (kind, name): "joins have no names"
        for kind in ("Join", "AliasedJoin")
        for name in ("alias", "columns", "sample")
    },
    **{
        (
            "AlterFunction",
            name,
        ): "CREATE FUNCTION takes it, and ALTER FUNCTION is refused for it by the parser or as there"
        for name in ("files", "options", "if_not_exists", "is_system", "is_temporary")
    },
    ("AlterTable", "partition"): "no text sets it",
    ("RowValue", "names"): "only the Table API sets it; the analyser reads it",
    **{("AlterAction", name): "of materialized tables" for name in ("freshness", "query", "refresh_mode")},
}

#: Clauses that are refused: the fields, a statement, and what the refusal says.
REFUSED: Final = (
    ("Select.is_stream", "SELECT STREAM a FROM t", "SELECT STREAM"),
    ("NamedTable.as_of", "SELECT a FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'", "SYSTEM_TIME"),
    ("NamedTable.as_of", "SELECT a FROM t FOR SYSTEM_TIME AS OF x.ts", "SYSTEM_TIME"),
    ("NamedTable.as_of", "SELECT * FROM t FOR SYSTEM_TIME AS OF t.ts JOIN u ON t.a = u.a", "SYSTEM_TIME"),
    ("NamedTable.sample", "SELECT a FROM t TABLESAMPLE BERNOULLI(10)", "TABLESAMPLE"),
    ("DerivedTable.sample", "SELECT a FROM (SELECT a FROM t) AS s TABLESAMPLE SYSTEM(10)", "TABLESAMPLE"),
    ("NamedTable.sample", "SELECT u.a FROM u JOIN t TABLESAMPLE SYSTEM(10) REPEATABLE(3) ON t.a = u.a", "TABLESAMPLE"),
    ("DerivedTable.hints", "SELECT a FROM (SELECT a FROM t) /*+ OPTIONS('a' = 'b') */ AS s", "hints"),
    (
        "WindowSpecification.exclusion",
        "SELECT SUM(a) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM t",
        "EXCLUDE CURRENT ROW",
    ),
    (
        "WindowSpecification.disallows_partial",
        "SELECT SUM(a) OVER (ORDER BY ts ROWS 2 PRECEDING DISALLOW PARTIAL) FROM t",
        "DISALLOW PARTIAL",
    ),
    (
        "WindowSpecification.exclusion",
        "SELECT a FROM t WINDOW w AS (ORDER BY ts ROWS 1 PRECEDING EXCLUDE CURRENT ROW)",
        "EX",
    ),
    ("UnnestedTable.sample", "SELECT * FROM t, UNNEST(l) AS s TABLESAMPLE SYSTEM(10)", "TABLESAMPLE"),
    (
        "NamedTable.sample",
        "SELECT * FROM t JOIN u FOR SYSTEM_TIME AS OF t.p TABLESAMPLE SYSTEM(9) ON TRUE",
        "TABLESAMPLE",
    ),
    ("DerivedTable.sample", "SELECT * FROM t, LATERAL (SELECT 1) AS s TABLESAMPLE SYSTEM(10)", "TABLESAMPLE"),
    ("FunctionTable.sample", "SELECT * FROM t, LATERAL TABLE(f(a)) AS s TABLESAMPLE SYSTEM(10)", "TABLESAMPLE"),
    (
        "MatchRecognize.sample",
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.a AS x PATTERN (A) DEFINE A AS A.a = 1) "
        "TABLESAMPLE SYSTEM(10)",
        "TABLESAMPLE",
    ),
    ("Pivot", "SELECT * FROM t PIVOT (SUM(a) AS s FOR b IN ('x'))", "Pivot is not supported"),
    ("Join.join_type", "SELECT * FROM t ASOF JOIN u ON t.a = u.a", "ASOF JOIN"),
    (
        "TableArgument.order",
        "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY b ORDER BY ts, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "ORDER BY",
    ),
    ("Call.is_distinct", "SELECT UPPER(DISTINCT b) FROM t", "DISTINCT"),
    ("Call.condition", "SELECT UPPER(b) FILTER (WHERE a > 1) FROM t", "FILTER"),
    ("Call.condition", "SELECT ROW_NUMBER() FILTER (WHERE a > 1) OVER (ORDER BY ts) FROM t", "FILTER"),
    ("Call.respects_nulls", "SELECT UPPER(b) IGNORE NULLS FROM t", "IGNORE NULLS"),
    ("Call.order", "SELECT UPPER(b) WITHIN GROUP (ORDER BY a) FROM t", "ORDER BY"),
    ("Call.order", "SELECT LISTAGG(b) WITHIN GROUP (ORDER BY a) FROM t", "takes no order"),
    ("Call.is_distinct", "SELECT f(DISTINCT b) FROM t", "DISTINCT is only for aggregate"),
    ("LambdaFunction", "SELECT UPPER(x -> x) FROM t", "has to follow an array"),
    ("ModelArgument", "SELECT UPPER(MODEL m) FROM t", "cannot be used in an expression"),
    ("Analyze", "ANALYZE TABLE parts PARTITION (b = 'x') COMPUTE STATISTICS FOR COLUMNS a", "ANALYZE TABLE"),
    ("CallProcedure", "CALL p.f(a => 1)", "CALL"),
    ("Update", "UPDATE u SET a = 1", "UPDATE"),
    ("Delete", "DELETE FROM u WHERE a = 1", "DELETE"),
    ("Truncate", "TRUNCATE TABLE t", "TRUNCATE TABLE"),
    ("JarStatement", "REMOVE JAR 'x.jar'", "REMOVE JAR"),
    ("JobStatement", "STOP JOB 'aa' WITH SAVEPOINT", "statements about jobs"),
    ("ExecutePlan", "EXECUTE PLAN 's3://x'", "a file of this machine"),
    ("LoadModule", "UNLOAD MODULE core", "cannot be unloaded"),
    ("LoadModule", "LOAD MODULE x WITH ('a' = 'b')", "module"),
    ("CreateMaterializedTable", "CREATE MATERIALIZED TABLE m START_MODE = FROM_NOW AS SELECT a FROM t", "START_MODE"),
    ("AlterTable.is_materialized", "ALTER MATERIALIZED TABLE t SUSPEND", "is not a materialized table"),
    ("AlterAction.partition", "ALTER TABLE parts ADD IF NOT EXISTS PARTITION (b = 'x')", "hold no partitions"),
    ("AlterAction.if_exists", "ALTER TABLE parts DROP IF EXISTS PARTITION (b = 'x')", "hold no partitions"),
    ("ShellCommand", "QUIT", "commands of a shell"),
    ("Create.query", "CREATE MODEL m AS SELECT 1", "no provider trains models"),
    ("CreateFunction.files", "CREATE FUNCTION f AS 'x.y' LANGUAGE JAVA USING JAR 'x.jar'", "JAVA"),
    ("CreateFunction.options", "CREATE FUNCTION f AS 'builtins.len' LANGUAGE PYTHON WITH ('a' = 'b')", "options"),
    ("KeyConstraint.is_unique", "CREATE TABLE n (a INT, UNIQUE (a) NOT ENFORCED)", "UNIQUE"),
    ("Show.partition", "SHOW PARTITIONS parts PARTITION (a = 'x')", "no partition column"),
    ("Call.within_distinct", "SELECT COUNT(a) WITHIN DISTINCT (b) FROM t", "WITHIN DISTINCT"),
    ("With.is_recursive", "WITH RECURSIVE w AS (SELECT 1) SELECT * FROM w", "RECURSIVE"),
    ("Exists.is_unique", "SELECT a FROM t WHERE UNIQUE (SELECT a FROM u)", "UNIQUE"),
    ("Hint.name", "SELECT /*+ STATE_TTLL('t' = '1s') */ a FROM t", "did you mean 'STATE_TTL'"),
    ("Hint.name", "SELECT a FROM t /*+ OPTION('a' = 'b') */", "did you mean 'OPTIONS'"),
    ("Hint.name", "INSERT INTO sink /*+ NOPE */ SELECT a, b FROM t", "There is no hint NOPE"),
    ("Hint.arguments", "SELECT /*+ BROADCAST(nope) */ t.a FROM t JOIN u ON t.a = u.a", "cannot match the name"),
    ("Distribution.columns", "INSERT INTO spread SELECT a FROM t", "distributed into buckets"),
    ("Insert.upserts", "UPSERT INTO keyed SELECT a, c FROM u", "UPSERT"),
    ("NamedTable.version", "SELECT a FROM t VERSION AS OF 'v'", "VERSION AS OF"),
    (
        "AlterAction.reference",
        "ALTER TABLE parts CREATE BRANCH IF NOT EXISTS b AS OF VERSION 3 RETAIN 1 DAYS "
        "WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS",
        "no branches and tags",
    ),
    ("VersionReference.replaces", "ALTER TABLE parts CREATE OR REPLACE TAG b AS OF VERSION 3", "no branches and tags"),
    (
        "Merge.clauses",
        "MERGE INTO sink /*+ OPTIONS('a' = 'b') */ AS s USING u ON s.a = u.a WHEN MATCHED AND u.c > 1 "
        "THEN UPDATE SET a = 1 WHEN NOT MATCHED THEN INSERT (a) VALUES (1) WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "MERGE statement is not supported for streaming mode",
    ),
)


@cache
def node_types() -> list[type]:
    found: list[type] = []
    for module in MODULES:
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and is_dataclass(one) and one.__module__ == module.__name__
        ]
    return list(dict.fromkeys(found))


class Watched:
    """In the place of a field of a class: remembers where it is read."""

    def __init__(self, name: str, field: Any, reads: set[Read]) -> None:
        self._name = name
        self._field = field
        self._reads = reads

    def __get__(self, node: Any, owner: type) -> Any:
        if node is None:
            return self._field
        value = self._field.__get__(node, owner)
        frame = sys._getframe(1)
        module = frame.f_globals.get("__name__", "")
        is_engine = module.startswith(("penstock.table.", "penstock.sql."))
        is_planner = is_engine and not module.startswith("penstock.sql.parser")
        if is_planner and frame.f_code.co_code[frame.f_lasti] in READING:
            self._reads.add((type(node).__name__, self._name, repr(value)))
        return value

    def __set__(self, node: Any, value: Any) -> None:
        self._field.__set__(node, value)


@pytest.fixture(name="reads")
def watch(monkeypatch: pytest.MonkeyPatch) -> set[Read]:
    found: set[Read] = set()
    for kind in node_types():
        for name in kind.__dict__.get("__slots__", ()):
            if name != "at":
                monkeypatch.setattr(kind, name, Watched(name, kind.__dict__[name], found))
    return found


def written(node: Any) -> Iterator[Read]:
    """The fields in a statement that a clause has set."""
    if isinstance(node, tuple):
        for one in node:
            yield from written(one)
    elif is_dataclass(node) and type(node) in node_types():
        for one in fields(node):
            value = getattr(node, one.name)
            if one.name != "at" and (one.default is MISSING or value != one.default):
                yield type(node).__name__, one.name, repr(value)
                yield from written(value)


def tables() -> TableEnvironment:
    extra = (
        "CREATE TABLE u2 (x INT) WITH ('connector' = 'datagen')",
        "CREATE TABLE sink (a INT, b STRING) PARTITIONED BY (b) WITH ('connector' = 'blackhole')",
        "CREATE TABLE keyed (a INT, c INT, PRIMARY KEY (c) NOT ENFORCED) WITH ('connector' = 'blackhole')",
        "CREATE TABLE bare (a INT NOT NULL, ts TIMESTAMP(3)) WITH ('connector' = 'datagen')",
        "CREATE TABLE spread (a INT) DISTRIBUTED BY (a) INTO 2 BUCKETS WITH ('connector' = 'filesystem')",
        "CREATE DATABASE d",
        "CREATE MODEL given INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x', 'k' = 'v')",
    )
    return environment(Recorder(), *TABLES, *extra)


@pytest.mark.parametrize("sql", [*TAKEN, *TAKEN_STATEMENTS])
def test_a_statement_has_no_clause_that_nothing_reads(sql: str, reads: set[Read]) -> None:
    environment = tables()
    wanted = set(written(tuple(parse_script(sql))))
    reads.clear()
    for one in sql.split("; ") if sql not in SCRIPTS else [sql]:
        environment.execute_sql(one).print()
    assert sorted(one for one in wanted - reads if one[:2] not in UNREAD) == []


def test_each_field_is_written_in_some_statement() -> None:
    """A clause that is new in the syntax needs a statement above."""
    statements_of_tests = [*TAKEN, *TAKEN_STATEMENTS, *(sql for _, sql, _ in REFUSED)]
    found = {one[:2] for sql in statements_of_tests for one in written(tuple(parse_script(sql)))}
    refused = {one for one, _, _ in REFUSED}
    known = {(kind.__name__, one.name) for kind in node_types() for one in fields(kind) if one.name != "at"}
    missing = {one for one in known - found if one not in UNREAD and one[0] not in {*refused, *BASES}}
    assert sorted(missing) == []


@pytest.mark.parametrize(("field", "sql", "message"), REFUSED)
def test_what_does_nothing_here_is_refused(field: str, sql: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        tables().execute_sql(sql)
