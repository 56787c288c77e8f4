"""URLs of databases that are malformed: what an error says of them."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import Address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:SECRET/SECRET@db:5432/orders",
        "postgresql://me:SECRET@SECRET#@/SECRET@db/orders",
        "postgresql://me:SECRET SECRET@d b/orders",
        "postgresql://db:SECRET/orders",
        "jdbc:postgresql://me:SECRET/x@db/orders",
        "me:SECRET@db/orders",
        "postgres:me:SECRET@db",
        "jdbc:mysql://me:SECRET@db/orders",
        "SECRET",
    ],
)
def test_no_part_of_a_password_is_quoted(url: str) -> None:
    """S11: a password with a slash is cut there by whoever parses the URL, and the rest is no secret that is known."""
    with pytest.raises(ConfigurationError) as refused:
        Address(url)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:p%2Fw@db:5432/orders?sslmode=require", "db:5432/orders"),
        ("postgresql://me:p#w@db/orders", "db/orders"),
        ("postgresql://me:p?w@db/orders", "db/orders"),
        ("postgresql://db1:1,db2:2/orders", "db1:1,db2:2/orders"),
        ("postgresql://[::1]:5432/orders", "[::1]:5432/orders"),
        ("postgresql:///orders?host=/run/socket", "/orders"),
        ("postgresql://%2Frun%2Fsocket/orders", "%2Frun%2Fsocket/orders"),
        ("jdbc:postgresql://db/orders?user=me&password=a@b", "db/orders"),
        ("postgresql://me@db", "db"),
    ],
)
def test_well_formed_ones_show_host_and_database(url: str, place: str) -> None:
    assert Address(url).shown == place
    assert repr(Address(url)) == f"Address({place!r})"
