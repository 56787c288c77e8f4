"""Which options hold secrets, and what is shown in place of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: A key that has one of these in it is sensitive; Flink's list (`GlobalConfiguration`).
SENSITIVE: Final = (
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
)
#: What is shown of a sensitive value.
HIDDEN: Final = "******"
#: Keys of ours that hold secrets and have no word of Flink's list.
_OURS: Final = ("client.authorization",)
#: Keys with such a word that hold none.
_HARMLESS: Final = ("penstock.rest.token-dir",)


def is_sensitive(key: str) -> bool:
    """Whether the value of an option must not be shown."""
    lower = key.lower()
    return lower not in _HARMLESS and any(part in lower for part in SENSITIVE + _OURS)


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown."""
    return {key: HIDDEN if is_sensitive(key) else value for key, value in values.items()}
