"""`config.yaml` as Flink lays it out."""

from pathlib import Path

import pytest

from penstock.base.errors import ConfigurationError
from penstock.drivers.global_configuration import config_file, read_config_file


def read(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_config_file(path)


def test_nested_and_flat_keys_mix(tmp_path: Path) -> None:
    text = "parallelism:\n  default: 4\nexecution:\n  checkpointing:\n    interval: 3 min\na.b: c\n"
    assert read(tmp_path, text) == {
        "parallelism.default": "4",
        "execution.checkpointing.interval": "3 min",
        "a.b": "c",
    }


def test_scalars_are_text_as_they_are_written(tmp_path: Path) -> None:
    """YAML 1.2, as Flink reads it: `off` and `1:30` are words, and no key is a truth value."""
    text = "restart-strategy.type: off\npenstock.cache.dir: 1:30\nmy.flag: true\nmy.version: 1.10\n"
    assert read(tmp_path, text) == {
        "restart-strategy.type": "off",
        "penstock.cache.dir": "1:30",
        "my.flag": "true",
        "my.version": "1.10",
    }


def test_lists_take_the_form_that_their_option_reads(tmp_path: Path) -> None:
    text = "python.files: [a.py, b.zip]\nmy.list: [a, 'b;c']\n"
    assert read(tmp_path, text) == {"python.files": "a.py,b.zip", "my.list": "a;'b;c'"}


def test_an_option_that_takes_a_map_may_be_nested(tmp_path: Path) -> None:
    text = "pipeline:\n  global-job-parameters:\n    region: eu\n    tag: 'a,b'\n"
    assert read(tmp_path, text) == {"pipeline.global-job-parameters": "region:eu,tag:'a,b'"}


def test_keys_without_a_value_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, "spark.master:\nparallelism.default: 2\n") == {"parallelism.default": "2"}
    assert read(tmp_path, "# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "is no YAML"),
        ("- a\n- b\n", "holds no keys"),
        ("parallelism:\n  default: 1\nparallelism.default: 2\n", "sets parallelism.default twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_path(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "config.yaml") in str(raised.value)


def test_the_directory_is_a_variables_or_conf(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("penstock", "flink", "conf")}
    for place in places.values():
        place.mkdir()
        (place / "config.yaml").touch()
    penstock, flink = ({f"{name.upper()}_CONF_DIR": str(places[name])} for name in ("penstock", "flink"))
    assert config_file(flink | penstock, tmp_path) == places["penstock"] / "config.yaml"
    assert config_file(flink, tmp_path) == places["flink"] / "config.yaml"
    assert config_file({}, tmp_path) == places["conf"] / "config.yaml"
    assert config_file({}, places["conf"]) is None


def test_a_variable_that_names_no_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"PENSTOCK_CONF_DIR is .* no config.yaml"):
        config_file({"PENSTOCK_CONF_DIR": str(tmp_path)}, tmp_path)
