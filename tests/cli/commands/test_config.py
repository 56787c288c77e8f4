"""`config`, `completion` and `state`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.base.secrets import HIDDEN
from penstock.cli.main import main
from penstock.state.states import ValueStateDescriptor
from penstock.state_processor import SavepointWriter


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        "parallelism.default: 3\npenstock.rest.token: hunter2\nparalelism.default: 2\nslot.request.timeout: x\n"
    )
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    return path


def penstock(*args: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(main, args)
    return result.exit_code, result.output.splitlines()


def test_config_says_what_holds_and_where_it_is_from_without_secrets(conf: Path) -> None:
    code, lines = penstock("config", "-D", "parallelism.default=4", "-Dpipeline.name=a=b")
    assert code == 0
    assert "parallelism.default: 4  # -D" in lines
    assert "pipeline.name: a=b  # -D" in lines
    assert f"penstock.rest.token: {HIDDEN}  # {conf}" in lines
    assert not any("hunter2" in line for line in lines)


def test_config_warns_of_unknown_keys_and_wrong_values(conf: Path) -> None:
    _, lines = penstock("config")
    assert any(line.startswith("warning: option slot.request.timeout") for line in lines)
    assert "warning: option paralelism.default is unknown" not in "".join(lines), "no prefix of Flink's: the user's own"
    found = json.loads("\n".join(line for line in penstock("config", "--json")[1]))
    problems = {one["key"]: one["problem"] for one in found}
    assert problems["parallelism.default"] is None
    assert "slot.request.timeout" in problems["slot.request.timeout"]


def test_config_all_has_the_defaults_too(conf: Path) -> None:
    lines = penstock("config", "--all")[1]
    assert "execution.runtime-mode: STREAMING  # default" in lines
    assert f"parallelism.default: 3  # {conf}" in lines


def test_config_explains_an_option(conf: Path) -> None:
    assert penstock("config", "--explain", "parallelism.default") == (
        0,
        [
            "key:          parallelism.default",
            "type:         integer",
            "default:      1",
            "value:        3",
            f"from:         {conf}",
            "description:  The parallelism of operators that do not set their own.",
        ],
    )
    assert "default:      (none)" in penstock("config", "--explain", "execution.checkpointing.interval")[1]


def test_config_explains_no_unknown_option_but_names_the_nearest(conf: Path) -> None:
    code, lines = penstock("config", "--explain", "paralelism.defalt")
    assert code == 1
    assert lines == ["error: no option has the key paralelism.defalt: did you mean parallelism.default?"]
    assert "set state.backend.type instead" in penstock("config", "--explain", "state.backend")[1][0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    code, lines = penstock("completion", shell)
    assert code == 0
    assert any(f"_PENSTOCK_COMPLETE={shell}_complete" in line for line in lines)


def test_commands_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script asks for: the commands that begin so."""
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "penstock sav")
    monkeypatch.setenv("COMP_CWORD", "1")
    result = CliRunner().invoke(main, [], prog_name="penstock")
    assert result.output.splitlines() == ["plain,savepoint"]


def test_state_lists_what_is_stored_and_shows_it_as_json(tmp_path: Path) -> None:
    for name, values in (("one", 3), ("two", 5)):
        writer = SavepointWriter.new_savepoint(parallelism=1)
        writer.with_keyed_state("counter", ValueStateDescriptor("count"), [(i, i) for i in range(values)], 0, 1)
        writer.write(str(tmp_path / name))
    code, lines = penstock("state", "ls", str(tmp_path), "--json")
    assert code == 0
    found = json.loads("\n".join(lines))
    assert [one["path"] for one in found] == [f"file://{tmp_path}/one", f"file://{tmp_path}/two"]
    assert {one["kind"] for one in found} == {"savepoint"}
    shown = json.loads("\n".join(penstock("state", "show", str(tmp_path / "two"), "--count", "--json")[1]))
    (operator,) = shown["operators"]
    assert [(state["name"], state["mode"], state["entries"]) for state in operator["states"]] == [("count", "keyed", 5)]
    (tmp_path / "empty").mkdir()
    assert penstock("state", "ls", str(tmp_path / "empty"))[1] == [
        f"No savepoint or checkpoint is in {tmp_path / 'empty'}."
    ]
    assert penstock("state", "ls", str(tmp_path / "none")) == (1, [f"error: {tmp_path / 'none'} is no directory"])
