"""Default options, used where a program sets none, and their origins.

From the weakest to the strongest: the option's own default; `config.yaml`; `-D` on the command line; the program. The
option and the program handle the first and the last; this module looks up the two in between each time a program
creates an environment.

`penstock run` passes its options to the program's process in the environment variable `PENSTOCK_OPTIONS`, a JSON object
with string values. Other launchers may set it as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import remember
from penstock.drivers.settings.config_file import config_file, read_config_file

#: The environment variable that holds the command line's options.
OPTIONS_VARIABLE: Final = "PENSTOCK_OPTIONS"
#: The origin of the command line's options.
COMMAND_LINE: Final = "-D"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as text, and its origin: `-D` or the path of a file."""

    value: str
    origin: str


def default_settings(
    environment: Mapping[str, str] = os.environ, working_directory: Path | None = None
) -> dict[str, Setting]:
    """Return all options set outside the program, by key.

    Raises:
        ConfigurationError: if the file or the variable cannot be read.
    """
    settings: dict[str, Setting] = {}
    path = config_file(environment, working_directory or Path.cwd())
    if path is not None:
        settings |= {key: Setting(value, str(path)) for key, value in read_config_file(path).items()}
    settings |= {key: Setting(value, COMMAND_LINE) for key, value in _handed_over(environment).items()}
    remember({key: setting.value for key, setting in settings.items()})
    return settings


def default_configuration() -> Configuration:
    """Return the default settings as a configuration, to which the program adds its own."""
    return Configuration.from_dict({key: setting.value for key, setting in default_settings().items()})


def handed_over(options: Mapping[str, str]) -> str:
    """Return the value of the environment variable that passes these options on."""
    return json.dumps(dict(options))


def _handed_over(environment: Mapping[str, str]) -> dict[str, str]:
    text = environment.get(OPTIONS_VARIABLE)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{OPTIONS_VARIABLE} is no JSON: {error}") from error
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise ConfigurationError(
            f'{OPTIONS_VARIABLE} must be an object of texts, such as {{"parallelism.default": "2"}}'
        )
    return options
