"""Warnings about configuration keys that belong to no option."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.base.errors import ConfigurationError
from penstock.base.unknown_options import unknown_options
from penstock.drivers.listener import log_to_stderr_by_default

_log = logging.getLogger("penstock.job")


def check_keys(keys: Iterable[str], is_strict: bool, reported: set[str]) -> None:
    """Warn about each unknown key that is not in `reported`, and add it there.

    Raises:
        ConfigurationError: if `is_strict` and there are such keys.
    """
    unknown = unknown_options(set(keys) - reported)
    if unknown and is_strict:
        raise ConfigurationError("; ".join(unknown.values()))
    if unknown:
        log_to_stderr_by_default()
    for sentence in unknown.values():
        _log.warning("%s", sentence)
    reported.update(unknown)
