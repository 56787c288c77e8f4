"""Statements other than queries: rows, tables, sessions, and scripts of many."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.table.sql.shown import shown
from tests.table.statements import main

from penstock.sql.parser import SqlParserError, parse_script, parse_statement


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "INSERT INTO s (a, b) SELECT 1, 2",
            "Insert(path=(s), query=Select(items=(SelectItem(expression=1), SelectItem(expression=2))), "
            "columns=((a), (b)))",
        ),
        (
            "INSERT OVERWRITE s PARTITION (d = 'x') VALUES (1) ON CONFLICT DO DEDUPLICATE",
            "Insert(path=(s), query=Values(rows=((1))), partition=((d, 'x')), overwrites=True, conflict=DEDUPLICATE)",
        ),
        ("UPDATE t SET a = 1 WHERE b = 2", "Update(path=(t), assignments=((a, 1)), where=[= b 2])"),
        ("DELETE FROM t WHERE a", "Delete(path=(t), where=a)"),
        ("CALL p.f(a => 1)", "CallProcedure(call=[F NamedArgument(name=a, value=1)])"),
        ("EXPLAIN CHANGELOG_MODE, PLAN_ADVICE SELECT 1", "Explain(statement=QueryStatement(query=Select(items=("
         "SelectItem(expression=1)))), details=(CHANGELOG_MODE, PLAN_ADVICE))"),
        ("DROP TEMPORARY VIEW IF EXISTS a.v", "Drop(what=VIEW, path=(a, v), if_exists=True, is_temporary=True)"),
        ("DROP DATABASE d CASCADE", "Drop(what=DATABASE, path=(d), behaviour=CASCADE)"),
        ("USE CATALOG c", "Use(what=CATALOG, paths=((c)))"),
        ("USE c.d", "Use(what=DATABASE, paths=((c, d)))"),
        ("SHOW TABLES FROM c.d NOT LIKE 'x%'", "Show(what=TABLES, path=(c, d), pattern=x%, is_negated=True)"),
        ("SHOW CREATE TABLE t", "Show(what=CREATE TABLE, path=(t))"),
        ("DESC EXTENDED t", "Describe(what=TABLE, path=(t), is_extended=True)"),
        ("SET 'a.b' = 'c'", "SetOption(key=a.b, value=c)"),
        ("RESET", "SetOption(resets=True)"),
        ("LOAD MODULE m WITH ('a' = 'b')", "LoadModule(name=m, options=((a, b)))"),
        ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'm.f' LANGUAGE PYTHON", "CreateFunction(path=(f), target=m.f, "
         "language=PYTHON, is_temporary=True, is_system=True)"),
        ("CREATE CATALOG IF NOT EXISTS c WITH ('type' = 'memory')", "Create(what=CATALOG, path=(c), options=((type, "
         "memory)), if_not_exists=True)"),
        ("CREATE VIEW v (a) COMMENT 'x' AS SELECT  1", "CreateView(path=(v), query=Select(items=(SelectItem("
         "expression=1))), text=SELECT  1, columns=(a), comment=x)"),
        ("ALTER DATABASE d SET ('a' = 'b')", "Alter(what=DATABASE, path=(d), verb=SET, options=((a, b)))"),
    ],
)  # fmt: skip
def test_statement(sql: str, expected: str) -> None:
    assert shown(parse_statement(sql)) == expected


def test_create_table() -> None:
    statement = parse_statement(
        """
        CREATE TEMPORARY TABLE IF NOT EXISTS c.d.t (
            id BIGINT NOT NULL COMMENT 'who',
            `price` DECIMAL(10, 2),
            total AS price * 2 COMMENT 'twice',
            topic STRING METADATA VIRTUAL,
            ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
            WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
            CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED
        ) COMMENT 'orders' DISTRIBUTED BY HASH (id) INTO 4 BUCKETS PARTITIONED BY (topic)
        WITH ('connector' = 'values') LIKE other (INCLUDING ALL EXCLUDING OPTIONS)
        """
    )
    assert shown(statement) == (
        "CreateTable(path=(c, d, t), elements=Elements(columns=("
        "Column(path=(id), type=BIGINT NOT NULL, comment=who), Column(path=(price), type=DECIMAL(10, 2)), "
        "Column(path=(total), expression=[* price 2], comment=twice), "
        "Column(path=(topic), type=STRING, is_metadata=True, is_virtual=True), "
        "Column(path=(ts), type=TIMESTAMP_LTZ(3), metadata=timestamp, is_metadata=True)), "
        "constraints=(KeyConstraint(columns=(id), name=pk, is_enforced=False)), "
        "watermarks=(Watermark(column=(ts), expression=[- ts IntervalLiteral(text=5, "
        "qualifier=IntervalQualifier(resolution=SECOND))]))), comment=orders, "
        "distribution=Distribution(kind=HASH, columns=(id), buckets=4), partition_keys=(topic), "
        "options=((connector, values)), like=Like(path=(other), options=((INCLUDING, ALL), (EXCLUDING, OPTIONS))), "
        "is_temporary=True, if_not_exists=True)"
    )


def test_create_table_as() -> None:
    statement = shown(parse_statement("CREATE OR REPLACE TABLE t (b, a) WITH ('k' = 'v') AS SELECT a, b FROM s"))
    assert "names=(b, a)" in statement
    assert "replaces=True" in statement


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("RENAME TO u", "AlterAction(verb=RENAME TO, names=((u)))"),
        ("RENAME a TO b", "AlterAction(verb=RENAME COLUMN, names=((a), (b)))"),
        ("ADD a INT FIRST", "AlterAction(verb=ADD COLUMN, column=Column(path=(a), type=INT), position=FIRST)"),
        ("MODIFY a INT FIRST", "AlterAction(verb=MODIFY COLUMN, column=Column(path=(a), type=INT), position=FIRST)"),
        ("ADD PRIMARY KEY (a) NOT ENFORCED", "AlterAction(verb=ADD CONSTRAINT, constraint=KeyConstraint(columns=(a), "
         "is_enforced=False))"),
        ("DROP (a, b.c)", "AlterAction(verb=DROP COLUMN, names=((a), (b, c)))"),
        ("DROP WATERMARK", "AlterAction(verb=DROP WATERMARK)"),
        ("RESET ('k')", "AlterAction(verb=RESET, names=((k)))"),
        ("ADD PARTITION (d = 1) WITH ('k' = 'v')", "AlterAction(verb=ADD PARTITION, options=((k, v)), "
         "partition=((d, 1)))"),
    ],
)  # fmt: skip
def test_alter_table(action: str, expected: str) -> None:
    assert shown(parse_statement(f"ALTER TABLE t {action}")) == f"AlterTable(path=(t), actions=({expected}))"


def test_a_statement_set_is_one_statement() -> None:
    """Its semicolons do not end it."""
    script = "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT ';' ; END; SELECT 2;; -- done"
    first, second = parse_script(script)
    assert shown(first).count("Insert(") == 2
    assert first.kind == "OTHER"
    assert second.kind == "SELECT"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("", 'Encountered "<EOF>": expected a statement, at line 1, column 1.'),
        ("SELECT 1; SELECT 2", 'Encountered "SELECT": expected the end of the statement, at line 1, column 11.'),
        ("CREATE TABLE t (a)", "expected AS and a query, because the columns have no types"),
        ("CREATE TABLE t ()", "expected a name"),
        ("EXECUTE STATEMENT SET BEGIN END", "expected INSERT"),
        ("EXPLAIN DROP TABLE t", "EXPLAIN is for queries, INSERT and STATEMENT SET"),
        ("SET a.b = 'c'", "expected a text in single quotes"),
        ("SHOW COLUMNS", "expected FROM or IN"),
    ],
)
def test_errors(sql: str, error: str) -> None:
    with pytest.raises(SqlParserError) as raised:
        parse_statement(sql)
    assert error in str(raised.value)


def test_the_runner_prints_what_is_answered_otherwise(tmp_path: Path) -> None:
    cases = [
        {"sql": "SELECT 1", "parses": True, "kind": "SELECT"},
        {"sql": "SELECT", "parses": True, "kind": "SELECT"},
        {"sql": "VALUES (1)", "parses": True, "kind": "UNION"},
        {"sql": "SELECT 2", "parses": False, "kind": None},
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    lines = CliRunner().invoke(main, [str(tmp_path / "cases.json")]).output.splitlines()
    assert lines[0].startswith("refused: SQL parse failed.")
    assert lines[1:] == [
        "kind VALUES, not UNION: 'VALUES (1)'",
        "taken: 'SELECT 2'",
        "2 of 4 are taken or refused as Flink does, 1 of them with the same kind",
    ]
