"""What options say of look-ups: those of the session, those of the table, and those of the hint LOOKUP."""

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
    """What a cache holds: at most so many keys, each for so long (ms); None for no limit."""

    max_keys: int | None = None
    after_write_ms: int | None = None
    after_access_ms: int | None = None
    holds_missing: bool = True


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """How a table is asked.

    Attributes:
        is_async: whether a hint says so; None where there is none.
        is_ordered: whether answers that come later go out in the order of the input.
        capacity: how many batches may wait for an answer.
        timeout_ms: how long a batch waits at most.
        cache: None for no cache of some keys.
        reload: when a table that is held as a whole is read again; None for never, and for other tables.
        error_retries: how often a call that fails is repeated.
        miss_retries: how often keys without rows are asked for again, and
        miss_delay_ms: after how long.
        shuffles: whether rows go to subtasks by their keys.
        resolves_updates: whether what was found for a row is kept, so that a row that goes takes the same back.
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
    """What the options come to; those of the hint go first. `title`: of the table, for errors.

    Raises `ValidationError` for values that no option has.
    """
    mode = hint.get("output-mode", session.get(_MODE, _ORDERED)).upper()
    if mode not in (_ORDERED, _UNORDERED):
        raise ValidationError(f"output mode {mode!r} of look-ups of table {title}: use {_ORDERED} or {_UNORDERED}")
    timeout = hint.get("timeout", session.get(_TIMEOUT))
    is_key_ordered = session.get(_KEY_ORDERED, "false").lower() == "true"
    retries = _whole(hint["max-attempts"], "max-attempts", title) if "retry-predicate" in hint else 0
    return LookupSettings(
        is_async=None if "async" not in hint else hint["async"].lower() == "true",
        # The order of the input has that of each key in it.
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
