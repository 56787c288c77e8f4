"""Addresses of MySQL and MariaDB: what a URL says, what is refused, and that no message shows a password."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigurationError
from penstock.connectors.mysql.client import MySqlAddress, literal, quoted_path, split_path
from penstock.connectors.mysql.sink import add_number, parse_statement
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions


def test_a_url_says_where_and_as_whom() -> None:
    address = MySqlAddress.of_url("jdbc:mysql://me:s%2Fecret@db.example:3307/my%20shop?useSSL=true&connectTimeout=2500")
    assert (address.host, address.port, address.user, address.password) == ("db.example", 3307, "me", "s/ecret")
    assert (address.database, address.tls_mode, address.connect_timeout_s) == ("my shop", "preferred", 2.5)
    other = MySqlAddress.of_url("jdbc:mariadb://[::1]/?user=a&password=b%26&sslMode=verify-full", "you", "geheim")
    assert (other.host, other.port, other.user, other.password) == ("::1", 3306, "you", "geheim")
    assert (other.database, other.dialect, other.tls_mode) == (None, "mariadb", "verify_identity")
    assert other.shown == "[::1]:3306"


def test_a_password_is_sent_as_utf_8() -> None:
    assert MySqlAddress("h", password="pä日").arguments()["password"] == "pä日".encode()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("jdbc:mysql://me:SECRET@a:1,b:2/d", "one HOST:PORT/DATABASE"),
        ("jdbc:mysql:replication://a,b/d?password=SECRET", "several hosts"),
        ("jdbc:mysql://me:SEC/RET@h/d", "written as %2F"),
        ("jdbc:mysql://h/d?password=SECRET&serverTimezone=Europe/Berlin", "sessions are in UTC"),
        ("jdbc:mysql://h/d?password=SECRET&zeroDateTimeBehavior=CONVERT_TO_NULL", "unrepresentable-values"),
        ("jdbc:mysql://h/d?password=SECRET&nope=1", "'nope' .* is not known here"),
        ("jdbc:mysql://h/d?password=SECRET&sslMode=maybe", "is one of disabled"),
        ("jdbc:mysql://h/d?password=SECRET&connectTimeout=1s", "number of milliseconds"),
        ("jdbc:mysql://h:99999/d?password=SECRET", "1 to 65535"),
    ],
)
def test_a_malformed_url_is_refused_without_its_password(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        MySqlAddress.of_url(url)
    assert "SEC" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("jdbc:sqlserver://h;database=d", "SQL Server"),
        ("jdbc:oracle:thin:@h:1521/d", "Oracle"),
        ("jdbc:db2://h/d", "DB2"),
        ("jdbc:trino://h/d", "Trino"),
        ("jdbc:crate://h/d", "CrateDB"),
        ("jdbc:sqlite:/tmp/x", "SQLite"),
        ("https://h/d", "begins with"),
    ],
)
def test_other_dialects_are_refused_by_name(url: str, name: str) -> None:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
    with pytest.raises(ConfigurationError, match="speaks to PostgreSQL, MySQL and MariaDB") as caught:
        options.build()
    assert name in str(caught.value)


def test_the_driver_must_be_that_of_the_url() -> None:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:mariadb://h/d")
    assert builder.with_driver_name("org.mariadb.jdbc.Driver").build().get_driver_name() == "org.mariadb.jdbc.Driver"
    with pytest.raises(ConfigurationError, match=r"the driver of this URL is org\.mariadb"):
        builder.with_driver_name("com.mysql.cj.jdbc.Driver").build()


def test_names_and_texts_are_quoted() -> None:
    assert split_path("`a.b`.c") == ["a.b", "c"]
    assert quoted_path("d.ta`ble") == "`d`.`ta``ble`" or split_path("d.`ta``ble`") == ["d", "ta`ble"]
    assert literal("it's \\") == "'it''s \\\\'"


def test_placeholders_are_only_outside_of_texts() -> None:
    statement = parse_statement("INSERT INTO `a?` VALUES (?, '?\\'?', \"?\", ?) -- ?\n # ?\n /* ? */ , 5 % 2")
    assert statement.count == 2
    assert statement.executed % ("1", "2") == (
        "INSERT INTO `a?` VALUES (1, '?\\'?', \"?\", 2) -- ?\n # ?\n /* ? */ , 5 % 2"
    )
    with pytest.raises(ConfigurationError, match=r"no \?"):
        parse_statement("SELECT '?'")


def test_ranges_of_the_ledger_grow_by_one_number() -> None:
    text: str | None = ""
    for number in (3, 1, 2, 7, 5, 6, 4):
        assert text is not None
        text = add_number(text, number)
    assert text == "1-7"
    assert add_number("1-7", 4) is None
