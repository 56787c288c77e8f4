"""The session's time zone, as set by the option `table.local-time-zone`."""

from __future__ import annotations

import os
from datetime import tzinfo
from functools import cache
from pathlib import Path

from penstock.base.errors import ConfigurationError
from penstock.table.data.zone_names import zone_by_id


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
