"""The command line."""

from pathlib import Path

from click.testing import CliRunner

from penstock.cli.main import main


def test_version() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert result.output.startswith("penstock 0.")


def test_help_names_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert {"demo", "package-env", "savepoint", "version"} <= set(result.output.split())


def test_an_error_is_one_line_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    result = CliRunner().invoke(main, ["demo", "--target", "local", "--keep", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == f"error: {tmp_path / 'output'} already exists; name another folder\n"
