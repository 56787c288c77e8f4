"""Time zones by their Java names."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: the short names in Java's legacy class of time zones
_SHORT_NAMES: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "GMT-05:00",
    "HST": "GMT-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "GMT-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_OFFSET: Final = re.compile(r"(GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


@lru_cache(maxsize=256)
def zone_by_id(name: str) -> tzinfo | None:
    """Return the zone of an id such as `Europe/Berlin`, `UTC`, `GMT+8` or `+08:00`; None if it is unknown."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset.group(2) == "-" else 1
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[2:])
        if hours > 18 or minutes > 59 or seconds > 59:
            return None
        return timezone(sign * timedelta(hours=hours, minutes=minutes, seconds=seconds))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(maxsize=256)
def zone_or_gmt(name: str) -> tzinfo:
    """Find a zone like Java's legacy class of time zones: accept short names, and treat unknown names as GMT."""
    if name[:1] in ("+", "-"):
        return UTC
    return zone_by_id(_SHORT_NAMES.get(name, name)) or UTC


def zone_name(zone: tzinfo) -> str:
    """Return Arrow's name of a zone from `zone_by_id`: `Europe/Berlin`, `UTC` or `+08:00`."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = zone.utcoffset(None) or timedelta()
    minutes = offset // timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if offset else "UTC"
