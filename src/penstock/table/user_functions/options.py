"""Flink's options for asynchronous scalar functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.value_types import DURATION_MS, INTEGER, choice
from penstock.table.user_functions.opened import AsyncSettings

_PREFIX: Final = "table.exec.async-scalar."
CONCURRENT_MAX: Final = ConfigOption(f"{_PREFIX}max-concurrent-operations", INTEGER, 10)
#: the option's earlier name in Flink
BUFFER_CAPACITY: Final = ConfigOption(f"{_PREFIX}buffer-capacity", INTEGER, 10)
TIMEOUT_MS: Final = ConfigOption(f"{_PREFIX}timeout", DURATION_MS, 180_000)
RETRY_STRATEGY: Final = ConfigOption(f"{_PREFIX}retry-strategy", choice("FIXED_DELAY", "NO_RETRY"), "FIXED_DELAY")
RETRY_DELAY_MS: Final = ConfigOption(f"{_PREFIX}retry-delay", DURATION_MS, 100)
ATTEMPTS_MAX: Final = ConfigOption(f"{_PREFIX}max-attempts", INTEGER, 3)


def async_settings(options: Mapping[str, str]) -> AsyncSettings:
    """Read the settings from options. Raises `ConfigurationError` for invalid values."""
    configuration = Configuration()
    for key, value in options.items():
        if key.startswith(_PREFIX):
            configuration.set_string(key, value)
    capacity = CONCURRENT_MAX if configuration.contains_key(CONCURRENT_MAX.key()) else BUFFER_CAPACITY
    concurrent: int = configuration.read(capacity)
    attempts: int = configuration.read(ATTEMPTS_MAX)
    for option, count in ((capacity, concurrent), (ATTEMPTS_MAX, attempts)):
        if count < 1:
            raise ConfigurationError(f"{option.key()} must be at least 1, not {count}")
    if configuration.read(RETRY_STRATEGY) == "NO_RETRY":
        attempts = 1
    return AsyncSettings(concurrent, configuration.read(TIMEOUT_MS), attempts, configuration.read(RETRY_DELAY_MS))
