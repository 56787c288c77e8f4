"""The options of JSON tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: the key of the option for NULL keys in maps
NULL_KEYS: Final = "map-null-key.mode"


@dataclass(frozen=True, slots=True)
class JsonRules:
    """The options of the format `json`.

    Attributes:
        null_keys: how a map entry with a NULL key is written: FAIL, DROP or LITERAL.
        null_key: the key written for NULL with LITERAL.
    """

    fails_on_missing: bool = False
    ignores_errors: bool = False
    is_iso: bool = False
    has_plain_decimals: bool = False
    leaves_out_nulls: bool = False
    null_keys: str = "FAIL"
    null_key: str = "null"
