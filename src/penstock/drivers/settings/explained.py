"""Options as `penstock config` shows them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.base.errors import ConfigurationError, WrongValueError
from penstock.base.options import REGISTRY
from penstock.base.secrets import is_sensitive, shown_value
from penstock.base.unknown_options import unknown_options
from penstock.base.value_types import render
from penstock.drivers.settings.defaults import Setting


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
