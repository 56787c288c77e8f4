"""Lookup settings, from the options of the session and the table and from the LOOKUP hint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.time import parse_duration
from penstock.table.connectors.held_table import CACHE, holds_all
from penstock.table.data.errors import ValidationError
from penstock.table.streaming.lookups.reload_settings import Reload, reload_settings

_MODE: Final = "table.exec.async-lookup.output-mode"
_CAPACITY: Final = "table.exec.async-lookup.buffer-capacity"
_TIMEOUT: Final = "table.exec.async-lookup.timeout"
_KEY_ORDERED: Final = "table.exec.async-lookup.key-ordered-enabled"
_UPDATES: Final = "table.optimizer.non-deterministic-update.strategy"

_MAX_ROWS: Final = "lookup.partial-cache.max-rows"
_AFTER_WRITE: Final = "lookup.partial-cache.expire-after-write"
_AFTER_ACCESS: Final = "lookup.partial-cache.expire-after-access"
_MISSING: Final = "lookup.partial-cache.cache-missing-key"
_MAX_RETRIES: Final = "lookup.max-retries"

_ORDERED, _UNORDERED = "ORDERED", "ALLOW_UNORDERED"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The limits of a cache: the number of keys, and how long each is cached (ms); None for no limit."""

    max_keys: int | None = None
    after_write_ms: int | None = None
    after_access_ms: int | None = None
    holds_missing: bool = True


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """How a table is looked up.

    Attributes:
        is_async: the value of the hint; None without a hint.
        is_ordered: whether asynchronous answers are emitted in input order.
        capacity: the maximum number of batches that wait for an answer.
        timeout_ms: how long a batch waits at most.
        cache: the settings of a partial cache; None without one.
        reload: when a fully cached table is reloaded; None for never, and for other tables.
        error_retries: how often a failed call is retried.
        miss_retries: how often keys without rows are looked up again.
        miss_delay_ms: the delay before each of these lookups.
        shuffles: whether rows are partitioned by their keys.
        resolves_updates: whether the matches of a row are stored, so that its retraction retracts the same matches.
    """

    is_async: bool | None = None
    is_ordered: bool = True
    capacity: int = 100
    timeout_ms: int = 180_000
    cache: CacheSettings | None = None
    reload: Reload | None = None
    error_retries: int = 0
    miss_retries: int = 0
    miss_delay_ms: int = 0
    shuffles: bool = False
    resolves_updates: bool = False


def lookup_settings(
    session: Mapping[str, str], table: Mapping[str, str], hint: Mapping[str, str], title: str
) -> LookupSettings:
    """Return the settings that the options define; the hint takes precedence. `title`: the name of the table, for
    errors.

    Raises `ValidationError` for invalid values.
    """
    mode = hint.get("output-mode", session.get(_MODE, _ORDERED)).upper()
    if mode not in (_ORDERED, _UNORDERED):
        raise ValidationError(f"output mode {mode!r} of look-ups of table {title}: use {_ORDERED} or {_UNORDERED}")
    timeout = hint.get("timeout", session.get(_TIMEOUT))
    is_key_ordered = session.get(_KEY_ORDERED, "false").lower() == "true"
    retries = _whole(hint["max-attempts"], "max-attempts", title) if "retry-predicate" in hint else 0
    return LookupSettings(
        is_async=None if "async" not in hint else hint["async"].lower() == "true",
        # Input order includes the order of each key.
        is_ordered=mode == _ORDERED or is_key_ordered,
        capacity=_whole(hint.get("capacity", session.get(_CAPACITY, "100")), _CAPACITY, title),
        timeout_ms=180_000 if timeout is None else _duration(timeout, _TIMEOUT, title),
        cache=_cache(table, title),
        reload=reload_settings(table, title) if holds_all(table) else None,
        error_retries=_whole(table.get(_MAX_RETRIES, "0"), _MAX_RETRIES, title),
        miss_retries=retries,
        miss_delay_ms=_duration(hint["fixed-delay"], "fixed-delay", title) if retries else 0,
        shuffles=hint.get("shuffle", "false").lower() == "true",
        resolves_updates=session.get(_UPDATES, "").upper() == "TRY_RESOLVE",
    )


def _cache(options: Mapping[str, str], title: str) -> CacheSettings | None:
    kind = options.get(CACHE, "NONE").upper()
    if kind == "NONE" or holds_all(options):
        return None
    if kind != "PARTIAL":
        raise ValidationError(f"Invalid value for option '{CACHE}' of table {title}: {kind}. Use NONE, PARTIAL or FULL")
    rows, write, access = (options.get(key) for key in (_MAX_ROWS, _AFTER_WRITE, _AFTER_ACCESS))
    if rows is None and write is None and access is None:
        raise ValidationError(
            f"'{CACHE}' = 'PARTIAL' of table {title} would hold all keys for ever: set '{_MAX_ROWS}', "
            f"'{_AFTER_WRITE}' or '{_AFTER_ACCESS}'"
        )
    return CacheSettings(
        None if rows is None else _whole(rows, _MAX_ROWS, title),
        None if write is None else _duration(write, _AFTER_WRITE, title),
        None if access is None else _duration(access, _AFTER_ACCESS, title),
        options.get(_MISSING, "true").lower() == "true",
    )


def _whole(text: str, key: str, title: str) -> int:
    if not text.strip().isdecimal():
        raise ValidationError(f"Invalid value for option '{key}' of table {title}: {text!r} is no whole number")
    return int(text)


def _duration(text: str, key: str, title: str) -> int:
    try:
        return parse_duration(text).to_millis()
    except ValueError as error:
        raise ValidationError(f"Invalid value for option '{key}' of table {title}: {error}") from error
