"""The prompt, with keys that nobody types and a terminal that nobody sees."""

from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.cli.sql_shell.shells import shell_of

from penstock.cli.sql_shell.display import SCHEMES
from penstock.cli.sql_shell.prompt import Prompt, SqlCompleter, SqlLexer
from penstock.cli.sql_shell.shell import HELP, Shell, history_path

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
TABLEAU = "SET 'sql-client.execution.result-mode' = 'TABLEAU';"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def typed(keys: str, history: Path, shell: Shell | None = None) -> None:
    """Type at a prompt until it ends."""
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text(keys)
        Prompt(shell or shell_of(TABLEAU), history, None, keyboard, DummyOutput()).run()


def test_enter_ends_a_statement_only_where_it_is_complete(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed("SELECT 'a;b'\rAS\rtext_of_it;\rQUIT;\r", history)
    out = capsys.readouterr().out
    assert "text_of_it" in out
    assert "a;b" in out
    assert "ERROR" not in out


def test_several_statements_of_a_line_run_to_the_first_error(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed("SHOW CATALOGS; SELECT oops; SHOW MODULES;\rquit\r", history)
    out = capsys.readouterr().out
    assert "default_catalog" in out
    assert "UnknownNameError" in out
    assert "module name" not in out


def test_an_error_points_into_the_lines_that_were_typed(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed("SELECT a\rFORM 't';\rquit\r", history)
    assert "2 | FORM 't'\n  |      ^\n" in capsys.readouterr().out


def test_ctrl_c_drops_what_was_typed_and_ctrl_d_leaves(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed(f"SELECT oops;{CTRL_C}HELP;\r{CTRL_D}", history)
    out = capsys.readouterr().out
    assert "ERROR" not in out
    assert out.endswith(HELP)


def test_statements_come_back_in_the_next_session(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed("SHOW CATALOGS;\rquit\r", history)
    capsys.readouterr()
    typed(f"{UP}{UP}\rquit\r", history)
    assert "default_catalog" in capsys.readouterr().out


def test_the_file_of_the_history_has_no_secrets(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the session itself they come back."""
    typed(f"SET 'penstock.rest.token' = 'lemon tart';\r{UP}\rquit\r", history)
    assert "lemon tart" not in history.read_text()
    assert history.read_text().count("'penstock.rest.token' = '******'") == 1
    assert "ERROR" not in capsys.readouterr().out


@pytest.mark.parametrize("before", ["TABLE wond", "SHOW TABLES; TABLE wond", "SELECT\n1;\n\nDESCRIBE wond"])
def test_completion_is_for_the_statement_that_is_written(before: str) -> None:
    shell = shell_of("CREATE TEMPORARY VIEW wonderful AS SELECT 1 AS a;")
    found = list(SqlCompleter(shell.complete).get_completions(Document(before), CompleteEvent()))
    assert [(one.text, one.start_position) for one in found] == [("wonderful", -4)]


def test_behind_a_semicolon_a_statement_begins() -> None:
    completer = SqlCompleter(shell_of().complete)
    found = {one.text for one in completer.get_completions(Document("SHOW TABLES; "), CompleteEvent())}
    assert {"SELECT", "QUIT"} <= found


def test_a_job_that_failed_is_told_of(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = shell_of("CREATE TABLE sink (a BIGINT) WITH ('connector' = 'blackhole');")
    insert = "INSERT INTO sink SELECT CAST(x AS BIGINT) FROM (VALUES ('one')) AS t (x);"
    typed(f"SET 'table.dml-sync' = 'true';\r{insert}\rSHOW JOBS;\rquit\r", history, shell)
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert out.count("[ERROR]") == 1


def test_each_session_has_its_history(tmp_path: Path) -> None:
    assert history_path(None, None) == Path.home() / ".penstock-sql-history"
    assert history_path("shop", None) == Path.home() / ".penstock-sql-history-shop"
    assert history_path("shop", tmp_path / "lines") == tmp_path / "lines"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_keep_every_line_as_it_is(scheme: str) -> None:
    text = "SELECT `a`, 1 -- one\n/* two\nthree */ FROM t /*+ OPTIONS('x' = 'y') */ WHERE b = 'four\nfive'"
    line = SqlLexer(lambda: scheme).lex_document(Document(text))
    assert ["".join(part[1] for part in line(number)) for number in range(4)] == text.split("\n")
    styles = {part[1]: part[0] for number in range(4) for part in line(number)}
    assert styles["t"] == styles[","] == ""
    coloured = ["SELECT", "`a`", "1", "-- one", "'four", "/*+ OPTIONS('x' = 'y') */"]
    assert len({styles[one] for one in coloured}) == len(coloured)
    assert styles["/* two"] == styles["three */"]
