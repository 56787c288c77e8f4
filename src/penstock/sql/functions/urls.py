"""Functions of URLs and IPv4 addresses."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.codecs.serialization import parse_digits
from penstock.sql.functions import definition


class _Url(NamedTuple):
    """The parts of a URL, as Java splits them."""

    protocol: str
    host: str
    authority: str | None
    user: str | None
    path: str
    query: str | None
    reference: str | None


_PROTOCOL: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
#: the protocols that Java supports
_PROTOCOLS: Final = frozenset(("file", "ftp", "http", "https", "jar", "jmod", "jrt", "mailto"))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> _Url | None:
    """Split a URL into its parts; return None if it is invalid."""
    text = text.strip("".join(map(chr, range(33))))
    if text[:4].lower() == "url:":
        text = text[4:]
    begin = _PROTOCOL.match(text)
    if begin is None or begin.group(1).lower() not in _PROTOCOLS:
        return None
    rest, has_reference, reference = text[begin.end() :].partition("#")
    rest, has_query, query = rest.partition("?")
    authority = user = None
    host = ""
    if rest.startswith("//") and not rest.startswith("////"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user_and_host = _host(authority)
        if user_and_host is None:
            return None
        user, host = user_and_host
    return _Url(
        begin.group(1).lower(),
        host,
        authority,
        user,
        _shortened(rest),
        query if has_query else None,
        reference if has_reference else None,
    )


def _host(authority: str) -> tuple[str | None, str] | None:
    """Return the user and the host, or None if the authority is invalid."""
    user: str | None = None
    host = authority
    if authority.count("@") == 1:
        user, _, host = authority.partition("@")
    elif "@" in authority:
        host = ""
    if host.startswith("["):
        match = re.fullmatch(r"(\[[0-9a-fA-F:.]+(?:%[^\]]*)?\])(?::(\d*))?", host)
        return None if match is None else (user, match.group(1))
    host, _, port = host.partition(":")
    if port and not re.fullmatch(r"[+-]?\d+", port, re.ASCII):
        return None
    return (
        None
        if port and not -1 <= parse_digits(port.lstrip("+-")) * (-1 if port[0] == "-" else 1) < 2**31
        else (user, host)
    )


def _shortened(path: str) -> str:
    """Return a path with `.` and `..` removed where possible."""
    while (at := path.find("/./")) >= 0:
        path = path[:at] + path[at + 2 :]
    at = 0
    while (at := path.find("/../", at)) >= 0:
        before = path.rfind("/", 0, at) if at > 0 else -1
        if before >= 0 and path.find("/../", before) != 0:
            path, at = path[:before] + path[at + 3 :], 0
        else:
            at += 3
    while path.endswith("/.."):
        before = path.rfind("/", 0, path.find("/.."))
        if before < 0:
            break
        path = path[: before + 1]
    if path.startswith("./") and len(path) > 2:
        path = path[2:]
    return path[:-1] if path.endswith("/.") else path


def _part(url: _Url, part: str) -> str | None:
    match part:
        case "HOST":
            return url.host
        case "PATH":
            return url.path
        case "QUERY":
            return url.query
        case "REF":
            return url.reference
        case "PROTOCOL":
            return url.protocol
        case "FILE":
            return url.path if url.query is None else f"{url.path}?{url.query}"
        case "AUTHORITY":
            return url.authority
        case "USERINFO":
            return url.user
        case _:
            return None


def _parse_url(text: str, part: str, key: str | None = None) -> str | None:
    url = _parsed(text)
    value = None if url is None else _part(url, part)
    if key is None or value is None:
        return value
    match = re.search(f"(?:&|^){re.escape(key)}=([^&]*)", value) if part == "QUERY" else None
    return match.group(1) if match is not None else None


def _to_number(text: str) -> int | None:
    """Return the number of an address such as 127.0.0.1; with fewer parts, the last part is the last byte."""
    parts = text.split(".")
    if len(parts) > 4 or not all(re.fullmatch("[0-9]+", part) for part in parts):
        return None
    numbers = [int(part[-4:]) if not part[:-4].strip("0") else 256 for part in parts]
    if max(numbers) > 255:
        return None
    *first, last = numbers
    return sum(number << (24 - 8 * index) for index, number in enumerate(first)) + last


def _from_number(number: int) -> str | None:
    if not 0 <= number < 2**32:
        return None
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "PARSE_URL",
        definition.takes(definition.TEXT, definition.TEXT, definition.TEXT, optional=1),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_parse_url),
        "Returns a part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, AUTHORITY, FILE or USERINFO, or the value of a "
        "key in its query.",
        python_name="parseUrl",
        section="string",
        usage="PARSE_URL(string, part[, key])",
    ),
    definition.scalar(
        "INET_ATON",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.BIGINT),
        definition.per_value(_to_number),
        "Converts an IPv4 address to a number; returns NULL for an invalid address.",
        section="string",
        usage="INET_ATON(string)",
    ),
    definition.scalar(
        "INET_NTOA",
        definition.takes(definition.INTEGER),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_from_number),
        "Converts a number to an IPv4 address; returns NULL if the number is out of range.",
        section="string",
        usage="INET_NTOA(integer)",
    ),
)
