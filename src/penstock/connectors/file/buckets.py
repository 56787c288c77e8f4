"""Buckets (the directories below a file sink's base path), rolling policies, and the names of part files."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigurationError
from penstock.base.time import Duration, Time, to_millis

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
    """Assigns each record to a bucket: a relative path, empty for the base path itself.

    Examples:
        >>> from penstock.datastream.connectors import BucketAssigner
        >>> by_drink = BucketAssigner.by(lambda order: f"drink={order[0]}")
        >>> by_drink.bucket_id(("tea", 2), 0)
        'drink=tea'
        >>> BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd").bucket_id("tea", 0)
        '1970-01-01'
    """

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


PART_BYTES = 128 << 20
ROLLOVER_MS = 60_000
INACTIVITY_MS = 60_000


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When to close a part file between two checkpoints. A checkpoint closes every part file in any case.

    Create one with `default_rolling_policy` or `on_checkpoint_rolling_policy`. Limits are checked once per batch,
    before and after it is written, so a file may exceed its size by one batch.

    Attributes:
        part_bytes: close a file that has this many bytes; None for no such limit.
        rollover_interval_ms: close a file that was begun this long ago; None for no such limit.
        inactivity_interval_ms: close a file to which nothing was written for this long; None for no such limit.

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream.connectors import RollingPolicy
        >>> policy = RollingPolicy.default_rolling_policy(1 << 20, Duration.of_minutes(15), 60_000)
        >>> policy.should_roll(size_bytes=2 << 20, begun_ms=0, written_ms=0, now_ms=0)
        True
    """

    part_bytes: int | None = None
    rollover_interval_ms: int | None = None
    inactivity_interval_ms: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = PART_BYTES,
        rollover_interval: Duration | Time | datetime.timedelta | int = ROLLOVER_MS,
        inactivity_interval: Duration | Time | datetime.timedelta | int = INACTIVITY_MS,
    ) -> DefaultRollingPolicy:
        """Return a policy that closes files by size (bytes), age and inactivity (ints count ms).

        Raises:
            ConfigurationError: if a limit is not positive.
        """
        limits = (part_size, to_millis(rollover_interval), to_millis(inactivity_interval))
        if min(limits) <= 0:
            raise ConfigurationError(f"the limits of a rolling policy must be positive, not {limits}")
        return DefaultRollingPolicy(*limits)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy that closes files only at checkpoints."""
        return OnCheckpointRollingPolicy()

    def should_roll(self, size_bytes: int, begun_ms: int, written_ms: int, now_ms: int) -> bool:
        """Return whether to close a file of this size that was begun and last written to at these times."""
        return (
            (self.part_bytes is not None and size_bytes >= self.part_bytes)
            or (self.rollover_interval_ms is not None and now_ms - begun_ms >= self.rollover_interval_ms)
            or (self.inactivity_interval_ms is not None and now_ms - written_ms >= self.inactivity_interval_ms)
        )


@dataclass(frozen=True, slots=True)
class DefaultRollingPolicy(RollingPolicy):
    """Closes files by size, age and inactivity; see `RollingPolicy.default_rolling_policy`.

    Examples:
        >>> from penstock.datastream.connectors.file_system import DefaultRollingPolicy, RollingPolicy
        >>> isinstance(RollingPolicy.default_rolling_policy(part_size=1 << 20), DefaultRollingPolicy)
        True
    """


@dataclass(frozen=True, slots=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes files only at checkpoints; see `RollingPolicy.on_checkpoint_rolling_policy`.

    Examples:
        >>> from penstock.datastream.connectors.file_system import OnCheckpointRollingPolicy, RollingPolicy
        >>> isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
        True
    """


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """The names of part files: `{prefix}-{subtask}-{counter}-{run}{suffix}`.

    Examples:
        >>> from penstock.datastream.connectors import OutputFileConfig
        >>> config = OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
        >>> config.get_part_prefix(), config.get_part_suffix()
        ('words', '.txt')
    """

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return the prefix of the names."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix of the names."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Collects the settings of an `OutputFileConfig`."""

        def __init__(self) -> None:
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the prefix of the names.

            Raises:
                ConfigurationError: if it is empty, contains `/`, or begins with `.` or `_`, which would hide the files.
            """
            if not prefix or "/" in prefix or prefix[0] in "._":
                raise ConfigurationError(f"a part prefix must not be empty, contain / or begin with . or _: {prefix!r}")
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the suffix of the names, such as `.csv`.

            Raises:
                ConfigurationError: if it contains a `/`.
            """
            if "/" in suffix:
                raise ConfigurationError(f"a part suffix must not contain /: {suffix!r}")
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Build the configuration."""
            return OutputFileConfig(self._prefix, self._suffix)
