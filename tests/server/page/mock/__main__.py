"""Runs the mock server until it is interrupted."""

from __future__ import annotations

import threading

import click
from tests.server.page.mock.server import MockServer, World

from penstock.base.errors import PenstockError
from penstock.server.page import files


@click.command
@click.option("--port", default=8081, show_default=True)
@click.option("--wide", default=0, help="Add a job whose vertices have this many subtasks.")
@click.option("--token", default="", help="Ask for this token.")
def main(port: int, wide: int, token: str) -> None:
    """Serve made-up jobs, and the page if it is built."""
    try:
        page = files()
    except PenstockError as error:
        print(error)
        page = None
    server = MockServer(World(wide, token), page, port)
    print(server.url)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()


main()
