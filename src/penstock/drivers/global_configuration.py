"""Options that a program does not set itself: `config.yaml`, the command line of `penstock run`, and their defaults.

`config.yaml` has Flink's layout: nested keys, flat keys, or both. All scalars are text as written, as in Flink's YAML
1.2: `off` is a word, and `1:30` is not a number. An option of map type may be written as nested keys.

`Setting` is such an option, with its origin. From the weakest to the strongest, the origins are: the option's own
default; `config.yaml`; `-D` on the command line; the program. The option and the program handle the first and the last;
this module looks up the two in between each time a program creates an environment.

`penstock run` passes its options to the program's process in the environment variable `PENSTOCK_OPTIONS`, a JSON object
with string values. Other launchers may set it as well.

`effective` and `explained` return options as `penstock config` shows them.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from penstock.base.config_options import MAPPING, render
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, WrongValueError
from penstock.base.options import REGISTRY
from penstock.base.secrets import is_sensitive, remember, shown_value
from penstock.base.unknown_options import unknown_options

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


@dataclass(frozen=True, slots=True)
class EffectiveOption:
    """An option: its value as text (None if it has none), the value's origin, and any problem with it."""

    key: str
    value: str | None
    origin: str
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def effective(settings: Mapping[str, Setting], everything: bool) -> list[EffectiveOption]:
    """Return the options that are set, by key; with `everything`, also the others with their defaults."""
    unknown = unknown_options(settings)
    options = [
        EffectiveOption(key, _hidden(key, setting.value), setting.origin, unknown.get(key) or _wrong(key, setting))
        for key, setting in settings.items()
    ]
    if everything:
        options += [EffectiveOption(key, _default(key), "default") for key in REGISTRY if key not in settings]
    return sorted(options, key=lambda option: option.key)


def explained(key: str, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Describe an option: key, type, default, value, origin of the value, description.

    Raises:
        WrongValueError: if no option has this key; suggests similar keys.
    """
    option = REGISTRY.get(key)
    if option is None:
        message = unknown_options([key]).get(key)
        near = difflib.get_close_matches(key, REGISTRY, n=3, cutoff=0.6)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise WrongValueError(message or f"no option has the key {key}{hint}")
    setting = settings.get(key)
    explanation: dict[str, Any] = {
        "key": key,
        "type": option.value_type().name,
        "default": _default(key),
        "value": _default(key) if setting is None else _hidden(key, setting.value),
        "from": "default" if setting is None else setting.origin,
        "description": option.description(),
    }
    problem = None if setting is None else _wrong(key, setting)
    return explanation if problem is None else {**explanation, "problem": problem}


def _default(key: str) -> str | None:
    option = REGISTRY[key]
    return render(option.default_value()) if option.has_default_value() else None


def _hidden(key: str, value: str) -> str:
    return shown_value(key, value)


def _wrong(key: str, setting: Setting) -> str | None:
    option = REGISTRY.get(key)
    if option is None:
        return None
    try:
        option.convert(setting.value)
    except ConfigurationError as error:
        return f"{key} is not {option.value_type().name}" if is_sensitive(key) else str(error)
    return None
