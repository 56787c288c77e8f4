"""Secrets: which options hold them, and how they are hidden.

Options are displayed through `shown`. Text that may quote a secret, such as an error or a log line, goes through `hide`
where it leaves Penstock: logs and stderr, REST responses, events, failures of jobs. `hide` knows the secrets that this
process has met: any code that accepts options calls `remember`. It also hides text that looks like a credential: the
password in a URL, the value after `password=`, and the value of a SQL option with a secret's key.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

#: Shorter secrets are not hidden in text: they would be found in other words.
SECRET_CHARS_MIN: Final = 4

#: The replacement for a secret; Flink's.
HIDDEN: Final = "******"

#: A key that contains one of these, in any case, is a secret's key; Flink's list.
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

#: Parts of keys that Flink does not have or does not list: credentials of ZooKeeper, of cloud storage, and in headers.
OUR_PARTS: Final = (
    "client.authorization",
    "header.authorization",
    "header.cookie",
    "passphrase",
    "access-key",
    "access.key",
    "account-key",
    "account_key",
    "signing-key",
)

#: Keys that end in such a part say where a secret is, or how it is used.
_ABOUT_A_SECRET: Final = re.compile(r"[-._](?:dir|directory|file|path|location|enabled|endpoint|url|uri|type|class)$")
#: Values that are never treated as secrets.
_WORDS: Final = frozenset({"true", "false", "none", "null"})

_SECRET_KEY: Final = (
    r"[\w.-]*(?:password|passwd|passphrase|secret|api-?key|service-key|access[-_.]?key|jaas\.config)[\w.-]*"
)
#: Each such key contains one of these.
_SECRET_WORDS: Final = ("passw", "passphrase", "secret", "api-key", "apikey", "service-key", "access", "jaas.config")
#: Keys whose values are pairs such as `user:password` or `Authorization: Bearer token`.
_PAIRS: Final = ("basic-auth", "auth-params", "http-headers", "client.authorization", "header.authorization")
#: `scheme://user:password@host`. The password ends at the last @, even if that should have been quoted.
_IN_URL: Final = re.compile(r"""(?<=://)([^\s/:@"'<>]*):([^\s"'<>]*)@""")
#: `user:password@host` in text, also in a URL whose scheme is misspelt.
_URL_IN_TEXT: Final = re.compile(
    r"""(?<![^\s/"'=(,<])([\w.%+~-]{0,128}):([^\s/:@"'<>\\][^\s/@"'<>\\]{0,255})@(?=[\w\[])"""
)
#: `password=value` in a URL's query, a DSN or a JAAS line.
_ASSIGNED: Final = re.compile(
    rf"""(?i)((?<![\w.-]){_SECRET_KEY}\s*=\s*)(?:(\\?["'])(?P<quoted>[^"'\\]*)\2|(?P<plain>[^\s&;,"'<>()\\]+))"""
)
#: `'key' = 'value'`, an option in SQL.
_IN_SQL: Final = re.compile(r"""('([^'\s]+)'\s*=\s*)'((?:[^']|'')*)'""")
_JSON_STRING: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?', re.DOTALL)


def is_sensitive(key: str) -> bool:
    """Return whether the value of this key is a secret."""
    lowered = key.lower()
    return any(part in lowered for part in SENSITIVE_PARTS + OUR_PARTS)


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with secrets hidden: values of sensitive keys, and credentials within other values.

    >>> shown({"parallelism.default": "2", "s3.secret-key": "x", "url": "jdbc://me:pass@host"})
    {'parallelism.default': '2', 's3.secret-key': '******', 'url': 'jdbc://me:******@host'}
    """
    return {key: shown_value(key, value) for key, value in options.items()}


def shown_value(key: str, value: str) -> str:
    """Return the value of a key, with secrets hidden as in `shown`."""
    if is_sensitive(key):
        return HIDDEN
    for secret in find_credentials(value):
        value = value.replace(secret, HIDDEN)
    return value


def find_credentials(value: str) -> list[str]:
    """Return the passwords in a value, longest first: in URLs, in their queries, and after `password=`."""
    passwords = [match[2] for match in _IN_URL.finditer(value)]
    passwords += [match["quoted"] or match["plain"] or "" for match in _ASSIGNED.finditer(value)]
    passwords += [match[3].replace("''", "'") for match in _IN_SQL.finditer(value) if is_sensitive(match[2])]
    return sorted({password for password in passwords if password and password != HIDDEN}, key=len, reverse=True)


def values_to_hide(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets among the options' values that are to be hidden in text; short ones are left out."""
    secrets: set[str] = set()
    for key, value in options.items():
        if is_sensitive(key) and not _ABOUT_A_SECRET.search(key.lower()):
            secrets.add(value)
            if any(part in key.lower() for part in _PAIRS):
                secrets.update(_ends_of_pairs(value))
        secrets.update(find_credentials(value))
    return tuple(sorted(secret for secret in secrets if _is_distinct(secret)))


def _ends_of_pairs(value: str) -> set[str]:
    """Return the secrets in one or more of `scheme:user:password`, `user:password` or `header: Bearer token`."""
    pairs = [pair.strip(" '\"") for pair in re.split("[,;]", value)]
    ends = {re.split(r"[:\s]+", pair)[-1].strip("'\"") for pair in pairs if ":" in pair}
    return ends | {b64encode(pair.encode()).decode() for pair in pairs if ":" in pair}


def _is_distinct(secret: str) -> bool:
    return len(secret) >= SECRET_CHARS_MIN and secret.lower() not in _WORDS


class KnownSecrets:
    """The secrets that a process has met. Any thread may add secrets and hide them in text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: set[str] = set()
        #: the forms of all secrets, longest first
        self._forms: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets, except short ones, which occur in other words."""
        new = {secret for secret in secrets if _is_distinct(secret)} - self._secrets
        if not new:
            return
        with self._lock:
            self._secrets |= new
            forms = {form for secret in self._secrets for form in _list_secret_forms(secret)}
            self._forms = tuple(sorted(forms, key=len, reverse=True))

    def clear(self) -> None:
        """Forget all secrets."""
        with self._lock:
            self._secrets, self._forms = set(), ()

    def hide(self, text: str) -> str:
        """Return the text with all known secrets, and everything that looks like a credential, replaced by `******`."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        if "@" in text:
            text = _URL_IN_TEXT.sub(rf"\1:{HIDDEN}@", text)
        if _names_a_secret(text):
            text = _ASSIGNED.sub(_assigned, text)
        if "=" in text and "'" in text:
            text = _IN_SQL.sub(_option, text)
        return text

    def hide_json(self, text: str) -> str:
        """Return the JSON with secrets hidden in its string values, so that it stays JSON with the same fields."""
        if self.hide(text) == text:
            return text
        return _JSON_STRING.sub(lambda match: match[0] if match[2] else f'"{self.hide(match[1])}"', text)


def _names_a_secret(text: str) -> bool:
    """Return whether to search for assigned secrets: finding words is faster than matching expressions."""
    if "=" not in text:
        return False
    lowered = text.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def _assigned(match: re.Match[str]) -> str:
    mark = match[2] or ""
    return f"{match[1]}{mark}{HIDDEN}{mark}"


def _option(match: re.Match[str]) -> str:
    return f"{match[1]}'{HIDDEN}'" if is_sensitive(match[2]) else match[0]


def _list_secret_forms(secret: str) -> set[str]:
    """Return the forms of a secret: plain, in a URL, in JSON, in a Python literal and in SQL."""
    as_json = json.dumps(secret)[1:-1]
    forms = {secret, quote(secret, safe=""), quote(secret), unquote(secret), as_json, repr(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=False)[1:-1], secret.replace("'", "''")}
    forms |= {line.strip() for line in secret.splitlines()}  # a log may show each line separately
    return {form for form in forms if _is_distinct(form)}


#: The secrets that this process has met.
known_secrets: Final = KnownSecrets()


def remember(options: Mapping[str, object]) -> None:
    """Make the secrets among options known to `hide`. Any code that accepts options from a user calls this."""
    known_secrets.add(values_to_hide({key: str(value) for key, value in options.items()}))


def hide(text: str) -> str:
    """Return the text with known secrets and everything that looks like a credential hidden.

    >>> hide("cannot connect to postgresql://me:pass@db/orders")
    'cannot connect to postgresql://me:******@db/orders'
    >>> hide("SET 'penstock.rest.token' = 'letmein12'; SELECT 'a' = 'b'")
    "SET 'penstock.rest.token' = '******'; SELECT 'a' = 'b'"
    """
    return known_secrets.hide(text)


def hide_json(text: str) -> str:
    """Return the JSON with secrets hidden in its string values."""
    return known_secrets.hide_json(text)
