"""Texts as bytes, their hashes, and addresses."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.table.evaluated import column, type_text, value

from penstock.sql.data.errors import TableRuntimeError, ValidationError


@pytest.mark.parametrize(
    ("sql", "expected", "data_type"),
    [
        ("ENCODE('aé', 'UTF-8')", "aé".encode(), "BYTES NOT NULL"),
        ("ENCODE('aé', 'US-ASCII')", b"a?", "BYTES NOT NULL"),
        ("ENCODE('a', 'UTF-16')", b"\xfe\xff\x00a", "BYTES NOT NULL"),
        ("DECODE(x'fffe6100', 'UTF-16')", "a", "STRING NOT NULL"),
        ("DECODE(x'0061', 'UTF-16')", "a", "STRING NOT NULL"),
        ("DECODE(x'ff61', 'UTF-8')", "\ufffda", "STRING NOT NULL"),
        ("DECODE(CAST(NULL AS BYTES), 'UTF-8')", None, "STRING"),
        ("TO_BASE64('hello world')", "aGVsbG8gd29ybGQ=", "STRING NOT NULL"),
        ("TO_BASE64(x'00ff')", "AP8=", "STRING NOT NULL"),
        ("FROM_BASE64('aGVsbG8gd29ybGQ=')", "hello world", "STRING NOT NULL"),
        ("FROM_BASE64('YQ')", "a", "STRING NOT NULL"),
        ("URL_ENCODE('a b~*&/é')", "a+b%7E*%26%2F%C3%A9", "STRING"),
        ("URL_DECODE('a+b%20c%C3%A9')", "a b cé", "STRING"),
        ("URL_DECODE('a%zz')", None, "STRING"),
        ("URL_DECODE_RECURSIVE('a%252520b')", "a b", "STRING"),
        ("URL_DECODE_RECURSIVE('a%252520b', 2)", "a%20b", "STRING"),
        ("IS_VALID_UTF8(x'ff')", False, "BOOLEAN NOT NULL"),
        ("MAKE_VALID_UTF8(x'61ff')", "a\ufffd", "STRING NOT NULL"),
        ("MD5('test')", hashlib.md5(b"test").hexdigest(), "CHAR(32) NOT NULL"),
        ("SHA1('test')", hashlib.sha1(b"test").hexdigest(), "CHAR(40) NOT NULL"),
        ("SHA224('test')", hashlib.sha224(b"test").hexdigest(), "CHAR(56) NOT NULL"),
        ("SHA256('test')", hashlib.sha256(b"test").hexdigest(), "CHAR(64) NOT NULL"),
        ("SHA384('test')", hashlib.sha384(b"test").hexdigest(), "CHAR(96) NOT NULL"),
        ("SHA512(x'74657374')", hashlib.sha512(b"test").hexdigest(), "CHAR(128) NOT NULL"),
        ("SHA2('test', 224)", hashlib.sha224(b"test").hexdigest(), "VARCHAR(128) NOT NULL"),
    ],
)
def test_encodings_and_hashes(sql: str, expected: Any, data_type: str) -> None:
    assert value(sql) == expected
    assert type_text(sql) == data_type


@pytest.mark.parametrize("sql", ["ENCODE('a', 'nope')", "FROM_BASE64('a!')", "FROM_BASE64('a')", "FROM_BASE64('YQ=')"])
def test_what_cannot_be_decoded_fails(sql: str) -> None:
    with pytest.raises(TableRuntimeError):
        value(sql)


@pytest.mark.parametrize("sql", ["SHA2('a', 100)", "URL_DECODE_RECURSIVE('a', 0)", "MD5(5)"])
def test_wrong_constants_are_refused(sql: str) -> None:
    with pytest.raises(ValidationError):
        value(sql)


_URL = "http://user:pass@host:80/a/./b/../c.html;p?x=1%20&yx=2#r"


@pytest.mark.parametrize(
    ("url", "part", "expected"),
    [
        (_URL, "PROTOCOL", "http"),
        (_URL, "HOST", "host"),
        (_URL, "USERINFO", "user:pass"),
        (_URL, "AUTHORITY", "user:pass@host:80"),
        (_URL, "PATH", "/a/c.html;p"),
        (_URL, "QUERY", "x=1%20&yx=2"),
        (_URL, "FILE", "/a/c.html;p?x=1%20&yx=2"),
        (_URL, "REF", "r"),
        (_URL, "host", None),
        ("http://host", "PATH", ""),
        ("http://host", "QUERY", None),
        ("http://host/?#", "QUERY", ""),
        ("http://host/?#", "REF", ""),
        ("http://[::1]:80/", "HOST", "[::1]"),
        ("http://host:x/", "HOST", None),
        ("unknown://host/", "HOST", None),
        ("no address", "HOST", None),
    ],
)
def test_parts_of_addresses(url: str, part: str, expected: str | None) -> None:
    assert value(f"PARSE_URL('{url}', '{part}')") == expected


def test_a_key_of_the_query_is_found() -> None:
    assert value(f"PARSE_URL('{_URL}', 'QUERY', 'x')") == "1%20"
    assert value(f"PARSE_URL('{_URL}', 'QUERY', 'z')") is None
    assert value(f"PARSE_URL('{_URL}', 'HOST', 'x')") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("127.0.0.1", 2130706433),
        ("127.1", 2130706433),
        ("1.2.3", 16908291),
        ("255", 255),
        ("010.0.0.01", 167772161),
        ("256", None),
        ("1.2.3.4.5", None),
        ("1..2", None),
        (" 1.2.3.4", None),
        ("", None),
    ],
)
def test_addresses_become_numbers(text: str, number: int | None) -> None:
    assert value(f"INET_ATON('{text}')") == number


def test_numbers_become_addresses() -> None:
    assert value("INET_NTOA(2130706433)") == "127.0.0.1"
    assert value("INET_NTOA(4294967296)") is None
    assert value("INET_NTOA(-1)") is None


def test_columns_are_answered_row_by_row() -> None:
    assert column("TO_BASE64(a)", a=["a", None, "a"] * 10) == ["YQ==", None, "YQ=="] * 10
    assert column("PARSE_URL(a, b)", a=["http://h/p", None], b=["PATH", "HOST"]) == ["/p", None]
