"""K3: what a user misspells is refused or reported where it stands, with the nearest known name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from tests.said import said
from tests.table.api.recording import Recorder, environment, read_rows

import penstock
from penstock.base.errors import ConfigurationError, PenstockError
from penstock.base.unknown_options import FLINK_TABLE_OPTIONS, TABLE_OPTIONS, unknown_options
from penstock.common import Configuration
from penstock.sql.data.errors import UnknownNameError
from penstock.sql.parser import SqlParserError
from penstock.table import EnvironmentSettings, TableEnvironment

TABLES: Final = (
    "CREATE TABLE orders (id INT, amount INT) WITH ('connector' = 'datagen')",
    "CREATE TABLE sink (id INT) WITH ('connector' = 'blackhole')",
)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT\n  id,\n  amuont FROM orders",
            "Column 'amuont' not found in any table; did you mean 'amount'?, at line 3, column 3:\n  "
            "  amuont FROM orders\n    ^",
        ),
        (
            "SELECT id FROM ordres",
            "Object 'ordres' not found; did you mean 'orders'?, at line 1, column 16:\n  SELECT id FROM ordres\n"
            "                 ^",
        ),
        (
            "WITH recent AS (SELECT 1) TABLE recnet",
            "did you mean 'recent'?, at line 1, column 27:\n  WITH recent AS (SELECT 1) TABLE recnet\n"
            "                            ^",
        ),
        (
            "SELECT id FROM orders AS o WHERE o.Id > 1",
            "Column 'o.Id' not found in any table; did you mean 'id'?, at line 1, column 34:",
        ),
        (
            "SELECT id, SUM(x) FROM orders GROUP BY id",
            "Column 'x' not found in any table; there are amount, id, at line 1",
        ),
        ("SELECT * FROM orders JOIN sink ON orders.id = sink.idd", "did you mean 'id'?, at line 1, column 47:"),
        (
            "INSERT INTO sink SELECT amounts FROM orders",
            "Column 'amounts' not found in any table; did you mean 'amount'?, at line 1",
        ),
    ],
)
def test_an_unknown_name_is_shown_where_it_stands(sql: str, message: str) -> None:
    made = environment(Recorder(), *TABLES)
    with pytest.raises(UnknownNameError, match=re.escape(message)):
        made.execute_sql(sql)
    with pytest.raises(UnknownNameError, match=re.escape(message)):
        made.explain_sql(sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT * FROM orders JOIN sink USING (^idd)",
            "of USING not found on the left side of the join; did you mean",
        ),
        ("SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(^tss), INTERVAL '1' SECOND))", "Column 'tss' not found"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE ^ordres, DESCRIPTOR(ts), INTERVAL '1' SECOND))", "did you mean 'orders'"),
        ("INSERT INTO sink (^idd) SELECT id FROM orders", "Unknown target column 'idd'"),
        ("INSERT INTO ^sinkk SELECT 'sinkk', id FROM orders", "did you mean 'sink'"),
        ("SELECT id, ^abss(id), ABSS(id) FROM orders", "function signature ABSS.* did you mean 'ABS'"),
        ("SELECT * FROM orders, LATERAL TABLE(^spread(id))", "no table function of this name"),
        ("SELECT SUM(id) OVER ^w FROM orders WINDOW ww AS (ORDER BY id)", "Window 'w' not found; did you mean 'ww'"),
        ("SELECT orders.*, ^ordres.* FROM orders", "'ordres' not found"),
        ("CREATE TABLE t (id INT) DISTRIBUTED BY (^idd)", "Invalid bucket key 'idd'"),
        ("CREATE TABLE t (id INT) PARTITIONED BY (^idd)", "Partition column 'idd'"),
        ("CREATE TABLE t (id INT, PRIMARY KEY (^idd) NOT ENFORCED)", "Column 'idd' does not exist"),
        ("CREATE TABLE t LIKE ^ordres", "not found in the catalog; did you mean 'orders'"),
        ("DROP TABLE ^ordres", "does not exist; did you mean 'orders'"),
        ("DROP VIEW ^`ordres`", "does not exist; did you mean 'orders'"),
        ("ALTER TABLE ^ordres ADD (x INT)", "temporary table; did you mean 'orders'"),
        ("ALTER VIEW ^ordres RENAME TO others", "temporary view; did you mean 'orders'"),
        ("DESCRIBE ^ordres", "doesn't exist; did you mean 'orders'"),
        ("SHOW CREATE TABLE ^ordres", "does not exist; did you mean 'orders'"),
        ("SHOW COLUMNS FROM ^nothing -- and nothing", "doesn't exist"),
    ],
)
def test_every_clause_shows_where_an_unknown_name_stands(sql: str, message: str) -> None:
    """K3: the caret is in the statement, where it is put below the name."""
    before, after = sql.split("^")
    place = rf"at line 2, column {len(before) + 1}:\n  {re.escape(before + after)}\n  {' ' * len(before)}\^"
    with pytest.raises(UnknownNameError, match=f"(?s){message}.*, {place}"):
        environment(Recorder(), *TABLES).execute_sql(f"\n{before}{after}")


def test_a_name_that_could_stand_in_several_places_has_no_caret() -> None:
    with pytest.raises(UnknownNameError, match=r"right side of the join$"):
        environment(Recorder(), *TABLES).execute_sql("SELECT orders.amount FROM orders JOIN sink USING (amount)")


def test_an_unknown_name_in_a_view_is_shown_in_its_text() -> None:
    made = environment(Recorder(), *TABLES, "CREATE VIEW big AS SELECT id FROM orders WHERE amount > 5")
    made.execute_sql("ALTER TABLE orders RENAME amount TO total")
    with pytest.raises(UnknownNameError, match=r"'amount' not found .*at line 1, column 29:\n  SELECT id FROM orders"):
        made.execute_sql("SELECT *\n FROM big")


def test_the_table_of_an_insert_is_proposed() -> None:
    with pytest.raises(PenstockError, match=r"Cannot find table .*did you mean 'sink'\?"):
        environment(Recorder(), *TABLES).execute_sql("INSERT INTO sinks SELECT id FROM orders")


# --- options ---------------------------------------------------------------------------------------------------------


def tables(is_strict: bool, mode: str = "streaming", **more: str) -> TableEnvironment:
    options = {"execution.target": "local", "penstock.configuration.strict": str(is_strict).lower(), **more}
    settings = EnvironmentSettings.new_instance().with_configuration(Configuration.from_dict(options))
    return TableEnvironment.create(
        (settings.in_batch_mode() if mode == "batch" else settings.in_streaming_mode()).build()
    )


MISSPELT: Final = {
    "table.exec.state.tll": "did you mean table.exec.state.ttl",
    "table.optimizer.multi-join.enabled": "exists in Flink but not in Penstock",
    "state.backend.tpye": "did you mean state.backend.type",
}


@pytest.mark.parametrize("how", ["SET", "config", "settings"])
@pytest.mark.parametrize("key", MISSPELT)
def test_an_unknown_option_is_reported(how: str, key: str, caplog: pytest.LogCaptureFixture) -> None:
    for is_strict in (False, True):
        made = tables(is_strict, **({key: "1 h"} if how == "settings" else {}))
        if how == "SET":
            made.execute_sql(f"SET '{key}' = '1 h'")
        elif how == "config":
            made.get_config().set(key, "1 h")
        if is_strict:
            with pytest.raises(ConfigurationError, match=MISSPELT[key]):
                made.execute_sql("SELECT 1")
            continue
        assert read_rows(made, "SELECT 1") == [(1,)]
        assert any(key in line and MISSPELT[key] in line for line in said(caplog))


@pytest.mark.spark
def test_an_unknown_option_is_reported_in_batch() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean table\.exec\.state\.ttl"):
        tables(True, "batch", **{"table.exec.state.tll": "1 h"}).execute_sql("SELECT 1")


def test_each_option_that_is_read_is_known() -> None:
    """The list of options with an effect is that of the source."""
    found: set[str] = set()
    package = Path(penstock.__file__).parent
    for file in (*package.glob("table/**/*.py"), *package.glob("sql/**/*.py")):
        found |= set(re.findall(r'"(table\.(?:[a-z0-9]+[.-])*[a-z0-9-]+)"', file.read_text(encoding="utf-8")))
    assert {key for key in found if key not in TABLE_OPTIONS} - {"table.include"} == set()
    assert unknown_options(TABLE_OPTIONS) == {}
    assert not TABLE_OPTIONS & FLINK_TABLE_OPTIONS


# --- functions and texts ---------------------------------------------------------------------------------------------


def test_a_built_in_function_is_described() -> None:
    """K2: as Flink describes it."""
    made = environment(Recorder())
    assert read_rows(made, "DESCRIBE FUNCTION `abs`") == [("is system function", "true"), ("is temporary", "false")]
    rows: Any = read_rows(made, "DESCRIBE FUNCTION EXTENDED `abs`")
    described = dict(rows)
    assert described["kind"] == "SCALAR"
    assert described["is deterministic"] == "true"
    assert described["signature"] is not None
    assert ("kind", "AGGREGATE") in read_rows(made, "DESCRIBE FUNCTION EXTENDED `sum`")
    with pytest.raises(PenstockError, match="Function with the identifier '`nosuch`' doesn't exist"):
        made.execute_sql("DESCRIBE FUNCTION nosuch")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"E'a\nb'", "a\nb"),
        (r"E'\x41\u00e4\t'", "Aä\t"),
        (r"E'it''s \' q'", "it's ' q"),
        (r"e'a\nb\q'", "a\nb\\q"),
        (r"E'\\'", "\\"),
        (r"E'\101\7\1234'", "A\\7S4"),
        (r"E'\x4'", "\x04"),
        (r"E'\x414'", "A4"),
        (r"E'\U0001F600'", "\U0001f600"),
        (r"E'\x'", "x"),
        (r"E'\b\f\r\t'", "\b\f\r\t"),
        ("E'a\\\nb'", "a\\\nb"),
    ],
)
def test_a_text_with_escapes_is_read_as_in_c(text: str, value: str) -> None:
    """K2: as Flink reads it."""
    assert read_rows(tables(False), f"SELECT {text}") == [(value,)]


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(SqlParserError, match="needs four hexadecimal digits"):
        tables(False).execute_sql(r"SELECT E'\u12'")


# --- EXPLAIN ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "query", "message"),
    [
        ("k STRING, n BIGINT", "'connector' = 'nothing-7'", "SELECT 'a', 1", "nothing-7"),
        (
            "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED",
            "'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'",
            "SELECT k, COUNT(*) FROM (VALUES ('a')) AS o (k) GROUP BY k",
            "update",
        ),
        ("k STRING, n BIGINT", "'connector' = 'blackhole', 'nonsense' = '1'", "SELECT 'a', 1", "nonsense"),
    ],
)
def test_explain_refuses_what_insert_refuses(
    columns: str, options: str, query: str, message: str, tmp_path: Path
) -> None:
    """K2: as in Flink, EXPLAIN looks at sinks."""
    made = tables(False)
    made.execute_sql(f"CREATE TABLE s ({columns}) WITH ({options.format(path=tmp_path / 'out')})")
    for what in ("EXPLAIN ", ""):
        with pytest.raises(PenstockError, match=message):
            made.execute_sql(f"{what}INSERT INTO s {query}")
    assert not (tmp_path / "out").exists()
