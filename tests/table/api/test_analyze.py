"""EXPLAIN ANALYZE: a statement runs, and its plan comes with the figures of its job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.base.errors import JobExecutionError
from penstock.common import Configuration
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import SqlParserError, parse_statement, statements
from penstock.table import EnvironmentSettings, TableEnvironment

ROWS = 2_000


@pytest.fixture
def tables(tmp_path: Path) -> TableEnvironment:
    """Tables on the local target, with a table of numbers."""
    settings = {
        "execution.target": "local",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(tmp_path),
    }
    builder = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(builder.with_configuration(Configuration.from_dict(settings)).build())
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10000', "
        f"'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{ROWS}')"
    )
    tables.execute_sql("CREATE TABLE sums (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    tables.execute_sql("CREATE TABLE more (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    return tables


def analyze(tables: TableEnvironment, statement: str) -> str:
    """The text of EXPLAIN ANALYZE."""
    with tables.execute_sql(f"EXPLAIN ANALYZE {statement}").collect() as rows:
        (row,) = rows
    return str(row[0])


def find_line(text: str, operator: str) -> list[str]:
    """The cells of the line of an operator, with its place in the tree."""
    (line,) = [line for line in text.splitlines() if re.match(rf" *{operator}  ", line)]
    return re.split(r"  +", line.strip())


def test_a_query_runs_and_its_operators_have_figures(tables: TableEnvironment) -> None:
    """The plan comes first, then the tree of operators, consumers above producers."""
    text = analyze(tables, "SELECT MOD(id, 10), COUNT(*) FROM numbers GROUP BY MOD(id, 10)")
    assert text.index("== Abstract Syntax Tree ==") < text.index("== Streams ==") < text.index("== Analyzed Job ==")
    assert "is FINISHED" in text
    assert "completed checkpoints" in text
    name, parallelism, records_in, records_out, *_ = find_line(text, "Group Aggregate")
    assert (name, parallelism, records_in, records_out) == ("Group Aggregate", "2", "2,000", "3,990")
    source = find_line(text, "numbers")
    assert source[3] == "2,000"
    assert len(re.findall(r"[\d.]+ s \(\d+ %\)", text)) % 3 == 0
    assert text.index("Group Aggregate  ") < text.index("numbers  ")


def test_inserts_run_as_one_job(tables: TableEnvironment) -> None:
    """All sinks are in the tree."""
    insert = "SELECT MOD(id, 10), COUNT(*) FROM numbers GROUP BY MOD(id, 10)"
    text = analyze(
        tables, f"STATEMENT SET BEGIN INSERT INTO sums {insert}; INSERT INTO more SELECT id, 1 FROM numbers; END"
    )
    assert "(insert-into_default_catalog.default_database.sums,default_catalog.default_database.more)" in text
    assert find_line(text, "Sink sums")[2] == "2,000"
    assert find_line(text, "Sink more")[2] == "2,000"
    joined = analyze(tables, "SELECT a.id FROM numbers a JOIN numbers b ON a.id = b.id + 1")
    assert joined.count("(see above)") == 1


def test_the_failure_of_the_job_is_that_of_the_statement(tables: TableEnvironment) -> None:
    with pytest.raises(JobExecutionError, match="'one'"):
        analyze(tables, "SELECT CAST(x AS INT) FROM (VALUES ('one')) AS t (x)")
    with pytest.raises(ValidationError, match="nowhere"):
        analyze(tables, "SELECT * FROM nowhere")


def test_an_interrupt_ends_the_job_and_shows_its_figures(
    tables: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at Ctrl-C in the shell."""
    tables.execute_sql("CREATE TABLE endless (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')")
    result = tables.execute_sql("EXPLAIN ANALYZE SELECT id FROM endless")
    from penstock.sql.session import session

    def interrupt(rows: object, maxlen: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "deque", interrupt)
    with result.collect() as rows:
        (row,) = rows
    assert "is CANCELED" in row[0]
    assert "endless" in row[0]


def test_the_syntax() -> None:
    """Of a query, an INSERT, a statement set, and a job; nothing else."""
    parsed = parse_statement("EXPLAIN ANALYZE SELECT 1")
    assert isinstance(parsed, statements.Explain)
    assert parsed.runs
    parsed = parse_statement("explain analyze job '0a'")
    assert isinstance(parsed, statements.JobStatement)
    assert (parsed.verb, parsed.job_id) == ("ANALYZE", "0a")
    for wrong in ("EXPLAIN ANALYZE PLAN FOR SELECT 1", "EXPLAIN ANALYZE CREATE TABLE t (a INT)", "EXPLAIN ANALYZE JOB"):
        with pytest.raises(SqlParserError):
            parse_statement(wrong)
