"""Which options hold: the program's before the command line's before the file's before their own defaults."""

from pathlib import Path

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.global_configuration import OPTIONS_VARIABLE, Setting, default_settings, handed_over
from penstock.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that sets two options, and a command line that sets one of them otherwise."""
    path = tmp_path / "config.yaml"
    path.write_text("parallelism.default: 3\npipeline.name: of the file\nexecution.runtime-mode: BATCH\n")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(OPTIONS_VARIABLE, handed_over({"pipeline.name": "of the command line"}))
    return path


def test_each_setting_says_where_it_is_from(surroundings: Path) -> None:
    assert default_settings() == {
        "parallelism.default": Setting("3", str(surroundings)),
        "pipeline.name": Setting("of the command line", "-D"),
        "execution.runtime-mode": Setting("BATCH", str(surroundings)),
    }


def test_a_program_sees_them_and_overrides_them(surroundings: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string("my.own", "1"))
    assert env.get_configuration().to_dict() == {
        "parallelism.default": "3",
        "pipeline.name": "of the command line",
        "execution.runtime-mode": "BATCH",
        "my.own": "1",
    }
    given = Configuration().set_string("pipeline.name", "of the program")
    env = StreamExecutionEnvironment.get_execution_environment(given)
    assert env.get_configuration().get_string("pipeline.name", None) == "of the program"
    assert env.set_parallelism(1).get_parallelism() == 1


def test_tables_see_them(surroundings: Path) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().build())
    assert tables.get_config().get("parallelism.default", "") == "3"
    assert not tables.get_config().is_streaming()
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    assert tables.get_config().is_streaming()
    beside = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
    assert beside.get_config().get("parallelism.default", "") == "3"


@pytest.mark.parametrize("text", ["{", "[]", '{"parallelism.default": 2}'])
def test_what_is_handed_over_must_be_texts(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=OPTIONS_VARIABLE):
        default_settings({OPTIONS_VARIABLE: text}, tmp_path)


def test_without_either_there_is_nothing(tmp_path: Path) -> None:
    assert default_settings({}, tmp_path) == {}
