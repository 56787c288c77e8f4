"""The time zone of a session, as the option `table.local-time-zone` names it."""

from __future__ import annotations

import os
from datetime import tzinfo
from functools import cache
from pathlib import Path

from penstock.base.errors import ConfigurationError
from penstock.table.data.zone_names import zone_by_id


def zone_of(name: str) -> tzinfo:
    """The zone of a name such as `America/New_York`, `UTC` or `GMT-03:00`. Raises `ConfigurationError` for others."""
    found = zone_by_id(name)
    if found is None:
        raise ConfigurationError(
            f"table.local-time-zone: there is no time zone {name!r}. The supported zones are either full names such as "
            "'America/Los_Angeles', or custom ones such as 'GMT-08:00'."
        )
    return found


def system_zone() -> str:
    """The name of the zone of this machine; `UTC` where it has none."""
    return os.environ.get("TZ", "").removeprefix(":") or _linked_zone()


@cache
def _linked_zone() -> str:
    """What the machine says; it is asked once, as the C library does, because each query asks for the zone."""
    linked = Path("/etc/localtime")
    _, mark, name = str(linked.resolve()).partition("zoneinfo/") if linked.is_symlink() else ("", "", "")
    return name if mark else "UTC"
