"""`socket`: rows that a server sends as text."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.table.connectors.tables import build_reader

from penstock.base.errors import JobExecutionError
from penstock.runtime.connector import Boundedness
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment


def ddl(port: int, name: str, columns: str, more: str = "") -> str:
    return (
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'socket', 'hostname' = 'localhost', 'port' = '{port}', "
        f"'format' = '{name}'{more})"
    )


def received(name: str, columns: str, sent: bytes, more: str = "") -> list[tuple[object, ...]]:
    """The rows of a table whose server sends this and closes the connection."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(sent)

        thread = threading.Thread(target=serve)
        thread.start()
        tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        tables.get_config().set("execution.target", "local")
        tables.execute_sql(ddl(port, name, columns, more))
        try:
            with tables.execute_sql("SELECT * FROM t").collect() as rows:
                return sorted(map(tuple, rows))
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("name", "columns", "sent", "more", "expected"),
    [
        ("csv", "a INT, b STRING", b"1,x\n2,y\n", "", [(1, "x"), (2, "y")]),
        ("json", "a INT", b'{"a": 1}\0{"a": 2}', ", 'byte-delimiter' = '0'", [(1,), (2,)]),
        ("raw", "line STRING", b"one\ntwo", "", [("one",), ("two",)]),
    ],
)
def test_rows_come_as_the_format_says(
    name: str, columns: str, sent: bytes, more: str, expected: list[tuple[object, ...]]
) -> None:
    """Each delimiter ends one."""
    assert received(name, columns, sent, more) == expected


def test_a_row_that_cannot_be_read_is_counted_from_the_first() -> None:
    """With the server; or left out, if the table says so."""
    with pytest.raises(JobExecutionError) as refused:
        received("csv", "a INT", b"1\nx\n")
    assert "offset 1: column 'a': 'x' is no INT" in str(refused.value)
    assert received("json", "a INT", b'{"a": 1}\nx\n', ", 'json.ignore-parse-errors' = 'true'") == [(1,)]


def test_options_are_checked() -> None:
    """A port, a delimiter of one byte, and a format that has messages."""
    assert build_reader(ddl(1, "csv", "a INT")).source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    with pytest.raises(ValidationError, match=r"'port' .* between 1 and 65535, not 0"):
        build_reader(ddl(0, "csv", "a INT"))
    with pytest.raises(ValidationError, match=r"'byte-delimiter' .* from 0 to 127, not 200"):
        build_reader(ddl(1, "csv", "a INT", ", 'byte-delimiter' = '200'"))
    with pytest.raises(ValidationError, match="Format 'parquet' has only files"):
        build_reader(ddl(1, "parquet", "a INT"))
