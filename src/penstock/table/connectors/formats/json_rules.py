"""How a table is written as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonRules:
    """The options of the format `json`."""

    fails_on_missing: bool = False
    ignores_errors: bool = False
    is_iso: bool = False
    has_plain_decimals: bool = False
    leaves_out_nulls: bool = False
