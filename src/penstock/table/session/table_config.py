"""`TableConfig`: the options of a session of tables."""

from __future__ import annotations

import datetime
from typing import Any, Final, TypeVar

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import WrongTypeError
from penstock.base.options import PYTHON_EXECUTABLE, RUNTIME_MODE
from penstock.base.time import Duration
from penstock.base.value_types import BOOLEAN, DURATION_MS, INTEGER, STRING, choice
from penstock.table.session.time_zones import system_zone, zone_of

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
    """Options by key, as Flink names them. Those that nobody knows are kept, too.

    Args:
        configuration: where they are; None for a new one.
        root: where those are looked up that are not there, such as the options of a `StreamExecutionEnvironment`.
    """

    def __init__(self, configuration: Configuration | None = None, root: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._root = Configuration() if root is None else root

    @staticmethod
    def get_default() -> TableConfig:
        """Options of which none is set."""
        return TableConfig()

    def get(self, key: str, default_value: str | None = None) -> str | None:
        """The text of an option, or `default_value` where it is not set."""
        return self.to_map().get(key, default_value)

    def set(self, key: str, value: Any) -> TableConfig:
        """Set an option. Returns these options themselves.

        Raises:
            TypeError: if the key is no text or the value is None.
        """
        if not isinstance(key, str):
            raise WrongTypeError(f"the key of an option must be text, not {key!r}")
        if value is None:
            raise WrongTypeError(f"the value of option {key} cannot be None")
        self._configuration.add_all(Configuration.from_dict({key: value}))
        return self

    def reset(self, key: str) -> None:
        """Take an option away, so that its default holds."""
        self._configuration.remove_config(key)

    def read(self, option: ConfigOption[T]) -> T:
        """The value of an option. Raises `ConfigurationError` where its text has another form."""
        known = self._configuration.contains_key(option.key())
        return (self._configuration if known else self._root).read(option)

    def get_configuration(self) -> Configuration:
        """The options that are set here. Changes of it are changes of these options."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Set all options of a configuration."""
        self._configuration.add_all(configuration)

    def to_map(self) -> dict[str, str]:
        """All options as text."""
        return {**self._root.to_dict(), **self._configuration.to_dict()}

    # --- options with methods ----------------------------------------------------------------------------------------

    def is_streaming(self) -> bool:
        """Whether queries run as streams, so that their results are changelogs."""
        return self.read(RUNTIME_MODE) != "BATCH"

    def get_local_timezone(self) -> str:
        """The time zone in which TIMESTAMP_LTZ reads; by default that of this machine."""
        name = self.read(LOCAL_TIME_ZONE)
        return system_zone() if name == "default" else name

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the time zone: a name such as `America/New_York`, or `GMT-03:00`.

        Raises:
            ConfigurationError: if there is no such zone.
        """
        zone_of(timezone_id)
        self.set(LOCAL_TIME_ZONE.key(), timezone_id)

    def get_idle_state_retention(self) -> datetime.timedelta:
        """How long state is kept that nobody uses; zero, as by default, for ever."""
        return datetime.timedelta(milliseconds=self.read(STATE_TTL_MS))

    def set_idle_state_retention(self, duration: datetime.timedelta | Duration) -> None:
        """Set how long state is kept at least that nobody uses; zero for ever.

        Raises:
            TypeError: if it is no length of time.
        """
        if not isinstance(duration, datetime.timedelta | Duration):
            raise WrongTypeError(f"the idle state retention must be a datetime.timedelta, not {duration!r}")
        self._configuration.write(STATE_TTL_MS, duration)

    def get_python_executable(self) -> str:
        """The Python that runs functions."""
        return self.read(PYTHON_EXECUTABLE) or "python"

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python that runs functions: its path, or its name."""
        self._configuration.write(PYTHON_EXECUTABLE, python_exec)
