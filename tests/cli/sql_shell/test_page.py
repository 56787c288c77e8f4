"""What docs/sql-shell.md shows is what the command prints."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.cli.sql_shell.display import OPTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "sql-shell.md").read_text()
SCRIPTS = dict(re.findall(r"^```sql\n-- (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
TRANSCRIPTS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS)
def test_a_transcript_is_what_comes(command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, script in SCRIPTS.items():
        (tmp_path / name).write_text(f"-- {name}\n{script}")
    program, *arguments = shlex.split(command)
    assert program == "penstock"
    result = CliRunner().invoke(main, arguments)
    errors = result.stderr[result.stderr.index("[ERROR]") :] if "[ERROR]" in result.stderr else ""
    assert without_ids(result.stdout + errors).rstrip("\n") == without_ids(shown).rstrip("\n")
    assert result.exit_code == (1 if errors else 0)


def without_ids(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{32}\b", "…", text)


def test_each_file_of_the_page_has_its_transcript() -> None:
    assert sorted(SCRIPTS) == sorted(command.split()[-1] for command, _ in TRANSCRIPTS) != []


def test_each_option_of_the_shell_is_on_the_page() -> None:
    assert [key for key in OPTIONS if f"`{key}`" not in PAGE] == []


def test_the_readmes_sql_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (script,) = re.findall(r"^```sql\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.sql").write_text(script)
    result = CliRunner().invoke(main, ["sql", "-f", "orders.sql"])
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]
    windows = [row[3:5] for row in rows if len(row) == 6 and row[3].isdigit()]
    assert windows == [["60", "1830"], ["60", "5430"], ["60", "9030"]]
