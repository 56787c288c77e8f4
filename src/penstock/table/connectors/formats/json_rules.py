"""How a table is written as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: the key of the option that says what becomes of keys of maps that are NULL
NULL_KEYS: Final = "map-null-key.mode"


@dataclass(frozen=True, slots=True)
class JsonRules:
    """The options of the format `json`.

    Attributes:
        null_keys: what becomes of an entry of a map whose key is NULL: FAIL, DROP or LITERAL.
        null_key: the key that stands for NULL with LITERAL.
    """

    fails_on_missing: bool = False
    ignores_errors: bool = False
    is_iso: bool = False
    has_plain_decimals: bool = False
    leaves_out_nulls: bool = False
    null_keys: str = "FAIL"
    null_key: str = "null"
