"""`config.yaml` in Flink's layout: nested keys, flat keys, or both.

All scalars are text as written, as in Flink's YAML 1.2: `off` is a word, and `1:30` is not a number. An option of map
type may be written as nested keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.base.options import REGISTRY
from penstock.base.value_types import MAPPING, render

NAME: Final = "config.yaml"
#: Environment variables that name the directory, in order of precedence.
DIRECTORY_VARIABLES: Final = ("PENSTOCK_CONF_DIR", "FLINK_CONF_DIR")
#: The default directory, relative to the working directory.
DIRECTORY: Final = "conf"


def config_file(environment: Mapping[str, str], working_directory: Path) -> Path | None:
    """Find the file to read; None if there is none.

    Raises:
        ConfigurationError: if a variable names a directory without one.
    """
    for variable in DIRECTORY_VARIABLES:
        if directory := environment.get(variable):
            path = Path(directory) / NAME
            if not path.is_file():
                raise ConfigurationError(f"{variable} is {directory}, where no {NAME} is: unset it, or write {path}")
            return path
    path = working_directory / DIRECTORY / NAME
    return path if path.is_file() else None


def read_config_file(path: Path) -> dict[str, str]:
    """Read the options of a file, by key. Keys without a value are left out.

    Raises:
        ConfigurationError: if it cannot be read, is not valid YAML, has no keys, or sets a key twice.
    """
    import yaml

    try:
        document = yaml.load(path.read_text("utf-8"), yaml.BaseLoader)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no YAML: {error}") from error
    if not document:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds no keys: write key: value, one a line")
    options: dict[str, str] = {}
    for key, value in _flat(document, ""):
        if key in options:
            raise ConfigurationError(f"{path} sets {key} twice: nested and flat")
        options[key] = value
    return options


def _flat(mapping: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in mapping.items():
        key = f"{prefix}{name}"
        option = REGISTRY.get(key)
        kind = None if option is None else option.value_type()
        if isinstance(value, dict) and kind is not MAPPING:
            yield from _flat(value, f"{key}.")
        elif isinstance(value, list) and kind is not None and not kind.name.startswith("list"):
            yield key, ",".join(map(render, value))  # options that hold comma-separated text, such as python.files
        elif value != "":
            yield key, render(value)
