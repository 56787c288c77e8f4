"""The server of the tests keeps what was committed, whatever is done to it."""

from __future__ import annotations

import psycopg
import pytest
from tests.servers.postgres import postgres_server


def test_a_killed_server_has_what_was_committed() -> None:
    with postgres_server() as server:
        database = server.new_database()
        server.execute("CREATE TABLE t AS SELECT 1 AS a", database)
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        server.start(max_prepared_transactions="0")
        assert server.execute("SELECT a FROM t", database) == [(1,)]
        assert server.execute("SHOW max_prepared_transactions") == [("0",)]


def test_a_suspended_server_goes_on() -> None:
    with postgres_server() as server, server.connect() as connection:
        server.suspend()
        server.resume()
        assert connection.execute("SELECT 2").fetchall() == [(2,)]
