"""`ExecutionConfig`: execution settings of a program, as methods."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.time import Duration, Time, to_millis

__all__ = ["ExecutionConfig"]


class ExecutionConfig:
    """A view of a `Configuration` through methods; changes take effect there at once.

    Setters return this object and raise ConfigurationError for a value out of range.

    Args:
        configuration: the configuration to read and write; None for a new one.
    """

    PARALLELISM_DEFAULT = -1
    """The parallelism of a program that has set none."""

    PARALLELISM_UNKNOWN = -2
    """The value with which `set_parallelism` leaves the parallelism as it is."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_parallelism(self) -> int:
        """Return the default number of subtasks of an operator; `PARALLELISM_DEFAULT` if not set."""
        if self._configuration.contains_key(options.PARALLELISM.key()):
            return self._configuration.read(options.PARALLELISM)
        return self.PARALLELISM_DEFAULT

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default number of subtasks of an operator; `PARALLELISM_DEFAULT` unsets it."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(options.PARALLELISM.key())
        elif parallelism != self.PARALLELISM_UNKNOWN:
            self._configuration.write(options.PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups of keyed state; -1 if not set."""
        if self._configuration.contains_key(options.MAX_PARALLELISM.key()):
            return self._configuration.read(options.MAX_PARALLELISM)
        return -1

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups of keyed state: 1 to 32,768."""
        self._configuration.write(options.MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the interval at which watermark generators are asked for a watermark, in milliseconds."""
        return self._configuration.read(options.AUTO_WATERMARK_INTERVAL_MS)

    def set_auto_watermark_interval(self, interval: Duration | Time | datetime.timedelta | int) -> ExecutionConfig:
        """Set the interval at which watermark generators are asked for a watermark; an int is in milliseconds."""
        self._configuration.write(options.AUTO_WATERMARK_INTERVAL_MS, Duration.of_millis(to_millis(interval)))
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Assign a uid to each operator without one."""
        self._configuration.write(options.AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Make an operator without a uid an error, so that savepoints survive changes to the program."""
        self._configuration.write(options.AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether operators without a uid get one."""
        return self._configuration.read(options.AUTO_GENERATE_UIDS)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the user's own settings, which every function can read."""
        parameters = self._configuration.read(options.GLOBAL_JOB_PARAMETERS)
        return dict(parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Replace the user's own settings; values become text."""
        self._configuration.write(options.GLOBAL_JOB_PARAMETERS, dict(global_job_parameters_dict))
        return self
