"""Which options hold secrets, and what is shown in their place.

Whatever prints, sends or logs options goes through `shown`. Keys are judged, not values: a secret in an option whose
key does not say so, such as a password within a URL, is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: A shorter secret hides nothing in text, and would be found in other words.
SECRET_CHARS_MIN: Final = 4

#: What stands in the place of a secret; Flink's.
HIDDEN: Final = "******"

#: A key that has one of these in it, in whatever case, is that of a secret; Flink's list.
SENSITIVE_PARTS: Final = (
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

#: Keys that Flink does not have or does not list: credentials of ZooKeeper.
OUR_PARTS: Final = ("client.authorization",)


def is_sensitive(key: str) -> bool:
    """Whether the value under this key is a secret."""
    lowered = key.lower()
    return any(part in lowered for part in SENSITIVE_PARTS + OUR_PARTS)


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, with secrets hidden.

    >>> shown({"parallelism.default": "2", "s3.secret-key": "x"})
    {'parallelism.default': '2', 's3.secret-key': '******'}
    """
    return {key: HIDDEN if is_sensitive(key) else value for key, value in options.items()}


def values_to_hide(options: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets among the values of options, for what hides them in text; those that are too short are left out."""
    return tuple(sorted({v for key, v in options.items() if is_sensitive(key) and len(v) >= SECRET_CHARS_MIN}))
