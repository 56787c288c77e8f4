"""Buckets: the directories below a file sink's base path to which records are written."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ConfigurationError

_LETTERS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "DDD": "%j",
    "EEE": "%a",
}
_TOKEN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")
_CACHE_ENTRIES_MAX = 10_000


class BucketAssigner(ABC):
    """Assigns each record to a bucket: a relative path, empty for the base path itself."""

    #: Whether every record goes to the base path, so that the writer need not ask.
    is_constant: bool = False
    #: Whether only processing time matters: `bucket_id` is called once per batch, with None and the current time.
    goes_by_clock: bool = False

    @abstractmethod
    def bucket_id(self, value: Any, timestamp_ms: int) -> str:
        """Return the bucket of a record. `timestamp_ms` is its event time, or the current time if it has none.

        Results of count and global windows have the maximum timestamp.
        """

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that puts all records in the base path."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Return an assigner whose buckets are named by the time of writing, as in Flink.

        For event time, name the bucket by a field of the record: `BucketAssigner.by`.

        Args:
            format_str: a pattern of Java's letters yyyy, yy, MM, dd, HH, mm, ss, DDD, EEE; quoted text and other
                characters are copied.
            timezone_id: a zone such as `Europe/Berlin`; None for UTC.

        Raises:
            ConfigurationError: if a letter or the zone is unknown.
        """
        return _DateTime(format_str, timezone_id)

    @staticmethod
    def by(bucket_of: Callable[[Any], str]) -> BucketAssigner:
        """Return an assigner that puts each record in the bucket that the function returns."""
        return _ByFunction(bucket_of)


class _BasePath(BucketAssigner):
    is_constant = True

    def bucket_id(self, value: Any, timestamp_ms: int) -> str:
        return ""


class _ByFunction(BucketAssigner):
    def __init__(self, bucket_of: Callable[[Any], str]) -> None:
        self._bucket_of = bucket_of

    def bucket_id(self, value: Any, timestamp_ms: int) -> str:
        return self._bucket_of(value)


class _DateTime(BucketAssigner):
    goes_by_clock = True

    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        self._format = _strftime_format(format_str)
        try:
            self._zone: datetime.tzinfo = zoneinfo.ZoneInfo(timezone_id) if timezone_id else datetime.UTC
        except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(f"unknown time zone {timezone_id!r}") from error
        self._unit_ms = 1_000 if "%S" in self._format else 60_000
        self._names: dict[int, str] = {}

    def bucket_id(self, value: Any, timestamp_ms: int) -> str:
        unit = timestamp_ms // self._unit_ms
        name = self._names.get(unit)
        if name is None:
            if len(self._names) >= _CACHE_ENTRIES_MAX:
                self._names.clear()
            seconds = unit * self._unit_ms // 1_000
            moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)
            name = self._names[unit] = moment.astimezone(self._zone).strftime(self._format)
        return name


def check_bucket_id(bucket_id: str) -> str:
    """Return the bucket. Raises ConfigurationError unless it is visible and below the base path."""
    if any(not part or part[0] in "._" for part in bucket_id.split("/")):
        raise ConfigurationError(
            f"a bucket must be a relative path without parts that begin with . or _: {bucket_id!r}"
        )
    return bucket_id


def _strftime_format(pattern: str) -> str:
    parts = []
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token[1] is not None:
            parts.append(token[1].replace("%", "%%") or "'")
        elif text[0].isalpha():
            if text not in _LETTERS:
                raise ConfigurationError(f"{text!r} in the date format {pattern!r} is not supported")
            parts.append(_LETTERS[text])
        else:
            parts.append(text.replace("%", "%%"))
    return "".join(parts)
