"""`penstock sql` with files and standard input: results, errors, exit codes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.sql_shell.shells import LOCAL, answers, run_file
from tests.table.api.recording import Recorder, environment

from penstock.base.errors import OperationError
from penstock.cli.main import main
from penstock.cli.sql_shell.shell import INTERRUPTED, Shell, run_script
from penstock.sql.executor import ChangelogRow

ORDERS = """CREATE TEMPORARY VIEW orders AS
SELECT * FROM (VALUES ('Anna', 4), ('Ben', 2), ('Anna', 1)) AS t (customer, price);
"""
TOTALS = "SELECT customer, SUM(price) AS total FROM orders GROUP BY customer"
END = "Received a total of 4 rows"
MODE = "SET 'sql-client.execution.result-mode' ="


def test_a_stream_is_a_tableau_of_its_changes(tmp_path: Path) -> None:
    result = run_file(tmp_path, ORDERS + TOTALS)
    assert (result.exit_code, result.stderr.count("[ERROR]")) == (0, 0)
    view, shown = answers(result)
    assert view == "[INFO] Execute statement succeeded."
    lines = shown.split("\n")
    assert lines[1].split() == ["|", "op", "|", "customer", "|", "total", "|"]
    assert [line.split()[1::2] for line in lines[3:-2]] == [
        ["+I", "Anna", "4"],
        ["+I", "Ben", "2"],
        ["-U", "Anna", "4"],
        ["+U", "Anna", "5"],
    ]
    assert lines[-1] == "Received a total of 4 rows"


def test_an_empty_stream_says_so(tmp_path: Path) -> None:
    result = run_file(tmp_path, ORDERS + "SELECT * FROM orders WHERE price > 9;")
    assert answers(result)[1] == "Received a total of 0 row"


def test_a_table_is_what_the_changes_stand_for(tmp_path: Path) -> None:
    shown = answers(run_file(tmp_path, f"{MODE} 'table'; {ORDERS} {TOTALS};"))[-1].split("\n")
    assert [line.split()[1::2] for line in shown[3:-2]] == [["Ben", "2"], ["Anna", "5"]]
    assert shown[-1] == "2 rows in set"


def test_a_table_keeps_the_newest_rows(tmp_path: Path) -> None:
    limit = "SET 'sql-client.execution.max-table-result.rows' = '1';"
    assert answers(run_file(tmp_path, f"{MODE} 'TABLE'; {limit} {ORDERS} {TOTALS};"))[-1].endswith("\n1 row in set")


def test_a_changelog_is_a_line_a_change(tmp_path: Path) -> None:
    shown = answers(run_file(tmp_path, f"{MODE} 'CHANGELOG'; {ORDERS} {TOTALS};"))[-1].split("\n")
    assert shown == ["op customer, total", "+I Anna, 4", "+I Ben, 2", "-U Anna, 4", "+U Anna, 5", END]


@pytest.mark.parametrize("key", ["sql-client.display.max-column-width", "table.display.max-column-width"])
def test_wide_values_are_cut(tmp_path: Path, key: str) -> None:
    assert "| a2345... |" in answers(run_file(tmp_path, f"SET '{key}' = '8'; SELECT 'a23456789';"))[-1]


def make_batch_shell(*rows: ChangelogRow) -> Shell:
    seconds = iter([10.0, 11.5])
    recorder = Recorder(rows)
    return Shell(environment(recorder, is_batch=True), clock=lambda: next(seconds))


def test_a_batch_has_no_kinds_and_says_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(make_batch_shell(("+I", ("b",)), ("+I", ("c",))), "SELECT 'b' AS a;", "x") == 0
    border = "+---+"
    assert capsys.readouterr().out.split("\n")[1:-2] == [
        *(border, "| a |", border, "| b |", "| c |", border),
        "2 rows in set (1.50 seconds)",
    ]
    script = "SET 'sql-client.display.print-time-cost' = 'false'; SELECT 'b' AS a;"
    assert run_script(make_batch_shell(("+I", ("b",))), script, "x") == 0
    assert capsys.readouterr().out.endswith("\n1 row in set\n\n")


# --- errors ----------------------------------------------------------------------------------------------------------


def test_the_first_error_ends_a_file_and_points_at_the_place(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SHOW CATALOGS;\n\n  SELECT a\n\tFORM 't';\nSHOW TABLES;")
    assert result.exit_code == 1
    assert "SHOW TABLES" not in result.stdout
    assert result.stderr.split("\n")[:4] == [
        f"[ERROR] Could not execute SQL statement in {tmp_path / 'script.sql'}, line 3. Reason:",
        "SQL parse failed. Encountered \"'t'\": expected the end of the statement, at line 4, column 7.",
        "4 | \tFORM 't'",
        "  | \t     ^",
    ]


def test_a_column_counts_from_the_beginning_of_the_line(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SHOW CATALOGS; SELECT FROM;")
    assert "at line 1, column 23." in result.stderr
    assert "1 | SELECT FROM\n  |        ^\n" in result.stderr


def test_what_cannot_be_planned_names_its_error(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SELECT * FROM nowhere;")
    assert result.exit_code == 1
    assert "\nUnknownNameError: " in result.stderr
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_verbose_errors_have_a_traceback(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SET 'sql-client.verbose' = 'true'; SELECT * FROM nowhere;")
    assert "Traceback (most recent call last)" in result.stderr


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SET 'sql-client.no-option' = '1'", "There is no option 'sql-client.no-option'"),
        (f"{MODE} 'chart'", "sql-client.execution.result-mode"),
        ("SET 'sql-client.execution.max-table-result.rows' = '0'", "must be at least 1, not 0"),
    ],
)
def test_options_that_the_shell_has_not_are_refused(tmp_path: Path, statement: str, reason: str) -> None:
    result = run_file(tmp_path, statement)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_options_of_the_command_line_are_checked_too(tmp_path: Path) -> None:
    assert "There is no option" in run_file(tmp_path, "", "-D", "sql-client.x=1").stderr
    assert "-D takes key=value, not 'x'" in run_file(tmp_path, "", "-D", "x").stderr


def test_a_query_that_fails_while_it_runs_ends_the_file(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SELECT CAST(x AS INT) FROM (VALUES ('1'), ('one')) AS t (x); SHOW CATALOGS;")
    assert result.exit_code == 1
    assert "'one'" in result.stderr
    assert "SHOW CATALOGS" not in result.stdout


class InterruptedRows:
    """Rows of a query, and then Ctrl-C."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def client(self) -> str:
        return "client"

    def wait(self, timeout_ms: int | None = None) -> None:
        raise OperationError("nobody waits for it")

    def rows(self):
        yield "+I", ("b",)
        raise KeyboardInterrupt

    def cancel(self) -> None:
        self.is_cancelled = True


def test_an_interrupt_cancels_the_query_and_ends_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = InterruptedRows()
    recorder = Recorder()
    monkeypatch.setattr(recorder, "collect", lambda *arguments: job)
    assert run_script(Shell(environment(recorder)), "SELECT 'b' AS a; SHOW CATALOGS;", "x") == INTERRUPTED
    assert job.is_cancelled
    out = capsys.readouterr().out
    assert out.endswith("Received a total of 1 row\n[INFO] The query is cancelled.\n")


# --- where statements come from --------------------------------------------------------------------------------------


def test_standard_input_is_a_script_too() -> None:
    result = CliRunner().invoke(main, ["sql", "-D", LOCAL], input="SELECT 1 AS a;\nSELECT oops;\n")
    assert "Received a total of 1 row" in result.stdout
    assert "in standard input, line 2" in result.stderr
    assert result.exit_code == 1


def test_init_files_prepare_the_session_in_order(tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text("CREATE DATABASE shop;")
    (tmp_path / "two.sql").write_text("USE shop;")
    inits = [part for name in ("one", "two") for part in ("-i", str(tmp_path / f"{name}.sql"))]
    result = run_file(tmp_path, "SHOW CURRENT DATABASE;", *inits)
    assert "| shop " in result.stdout.replace("|                  shop", "| shop")
    assert "CREATE DATABASE" not in result.stdout


@pytest.mark.parametrize("statement", ["SELECT 1", "INSERT INTO t SELECT 1", "BEGIN STATEMENT SET"])
def test_init_files_start_no_job(tmp_path: Path, statement: str) -> None:
    (tmp_path / "init.sql").write_text(f"\n{statement};")
    result = run_file(tmp_path, "SHOW CATALOGS;", "-i", str(tmp_path / "init.sql"))
    assert result.exit_code == 1
    assert f"in {tmp_path / 'init.sql'}, line 2" in result.stderr
    assert "An init file sets options and makes tables" in result.stderr


def test_quit_ends_a_file(tmp_path: Path) -> None:
    result = run_file(tmp_path, "SHOW CATALOGS; QUIT; SELECT oops;")
    assert result.exit_code == 0
    assert "oops" not in result.stdout


def test_help_and_set_list_what_there_is(tmp_path: Path) -> None:
    helped, listed = answers(run_file(tmp_path, "HELP; SET;"))
    assert "STOP JOB 'id'" in helped
    assert "|            local |" in listed or "| local |" in listed
    assert "table.dml-sync" not in listed


def test_a_prompt_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cli.sql_shell import shell as terminal

    monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    with pytest.raises(NotImplementedError, match=r'pip install "penstock-streams\[shell\]"'):
        terminal.run_terminal(Shell(environment()), None, None)
