"""`TableConfig`: the options of a table session.

The session's time zone, as set by the option `table.local-time-zone`.
"""

from __future__ import annotations

import datetime
import os
from datetime import tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.base.config_options import BOOLEAN, DURATION_MS, INTEGER, STRING, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, WrongTypeError
from penstock.base.options import PYTHON_EXECUTABLE, RUNTIME_MODE
from penstock.base.time import Duration
from penstock.sql.data.datetimes import zone_by_id


def parse_zone(name: str) -> tzinfo:
    """Return the zone named, for example, `America/New_York`, `UTC` or `GMT-03:00`. Raises `ConfigurationError`."""
    zone = zone_by_id(name)
    if zone is None:
        raise ConfigurationError(
            f"table.local-time-zone: there is no time zone {name!r}. The supported zones are either full names such as "
            "'America/Los_Angeles', or custom ones such as 'GMT-08:00'."
        )
    return zone


def system_zone() -> str:
    """Return the name of this machine's zone; `UTC` if it has none."""
    return os.environ.get("TZ", "").removeprefix(":") or _linked_zone()


@cache
def _linked_zone() -> str:
    """Return the zone configured on this machine.

    It is read once, as the C library does, because every query needs it.
    """
    linked = Path("/etc/localtime")
    _, mark, name = str(linked.resolve()).partition("zoneinfo/") if linked.is_symlink() else ("", "", "")
    return name if mark else "UTC"


__all__ = ["TableConfig"]

T = TypeVar("T")

LOCAL_TIME_ZONE: Final = ConfigOption("table.local-time-zone", STRING, "default")
STATE_TTL_MS: Final = ConfigOption("table.exec.state.ttl", DURATION_MS, 0)
LEGACY_CAST: Final = ConfigOption("table.exec.legacy-cast-behaviour", choice("ENABLED", "DISABLED"), "DISABLED")
DML_SYNC: Final = ConfigOption("table.dml-sync", BOOLEAN, False)
MAX_COLUMN_WIDTH: Final = ConfigOption("table.display.max-column-width", INTEGER, 30)
BUILT_IN_CATALOG: Final = ConfigOption("table.builtin-catalog-name", STRING, "default_catalog")
BUILT_IN_DATABASE: Final = ConfigOption("table.builtin-database-name", STRING, "default_database")


class TableConfig:
    """Options by Flink's keys. Unknown options are kept.

    Args:
        configuration: stores the options; None for a new one.
        root: the fallback for unset options, such as the configuration of a `StreamExecutionEnvironment`.
    """

    def __init__(self, configuration: Configuration | None = None, root: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._root = Configuration() if root is None else root

    @staticmethod
    def get_default() -> TableConfig:
        """Return empty options."""
        return TableConfig()

    def get(self, key: str, default_value: str | None = None) -> str | None:
        """Return an option as a string, or `default_value` if it is not set."""
        return self.to_map().get(key, default_value)

    def set(self, key: str, value: Any) -> TableConfig:
        """Set an option. Returns `self`.

        Raises:
            TypeError: if the key is not a string or the value is None.
        """
        if not isinstance(key, str):
            raise WrongTypeError(f"the key of an option must be text, not {key!r}")
        if value is None:
            raise WrongTypeError(f"the value of option {key} cannot be None")
        self._configuration.add_all(Configuration.from_dict({key: value}))
        return self

    def reset(self, key: str) -> None:
        """Reset an option to its default."""
        self._configuration.remove_config(key)

    def read(self, option: ConfigOption[T]) -> T:
        """Return the value of an option. Raises `ConfigurationError` if it cannot be parsed."""
        known = self._configuration.contains_key(option.key())
        return (self._configuration if known else self._root).read(option)

    def get_configuration(self) -> Configuration:
        """Return the options set here. The result is not a copy: changes to it change these options."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Set all options of a configuration."""
        self._configuration.add_all(configuration)

    def to_map(self) -> dict[str, str]:
        """Return all options as strings."""
        return {**self._root.to_dict(), **self._configuration.to_dict()}

    # --- options with methods ----------------------------------------------------------------------------------------

    def is_streaming(self) -> bool:
        """Return whether queries run in streaming mode, so that their results are changelogs."""
        return self.read(RUNTIME_MODE) != "BATCH"

    def get_local_timezone(self) -> str:
        """Return the time zone for TIMESTAMP_LTZ, by default this machine's."""
        name = self.read(LOCAL_TIME_ZONE)
        return system_zone() if name == "default" else name

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the time zone: a name such as `America/New_York`, or `GMT-03:00`.

        Raises:
            ConfigurationError: if the zone does not exist.
        """
        parse_zone(timezone_id)
        self.set(LOCAL_TIME_ZONE.key(), timezone_id)

    def get_idle_state_retention(self) -> datetime.timedelta:
        """Return how long idle state is kept; zero, the default, means forever."""
        return datetime.timedelta(milliseconds=self.read(STATE_TTL_MS))

    def set_idle_state_retention(self, duration: datetime.timedelta | Duration) -> None:
        """Set the minimum time that idle state is kept; zero means forever.

        Raises:
            TypeError: if it is not a duration.
        """
        if not isinstance(duration, datetime.timedelta | Duration):
            raise WrongTypeError(f"the idle state retention must be a datetime.timedelta, not {duration!r}")
        self._configuration.write(STATE_TTL_MS, duration)

    def get_python_executable(self) -> str:
        """Return the Python interpreter that runs functions."""
        return self.read(PYTHON_EXECUTABLE) or "python"

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python interpreter that runs functions, by path or name."""
        self._configuration.write(PYTHON_EXECUTABLE, python_exec)
