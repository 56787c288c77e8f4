"""PostgreSQL → join → PostgreSQL on Spark: a worker and the server are killed, and each change comes once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.connectors.postgres import pipeline
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.kills import Run, Writing, last_version, strike, wait_until_right, wait_until_seen
from tests.servers.postgres import postgres_server


@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_and_the_server_are_killed(tmp_path: Path) -> None:
    """G8, G9: the joined table is the join, and every version of an order was inserted once."""
    with postgres_server() as server:
        database = Database(server, server.new_database())
        database.execute(pipeline.TABLES)
        run = Run(database, tmp_path, random.Random(1))
        run.start()
        try:
            writing = Writing(database, 1, 0.02)
            wait_until_seen(database, run)
            since = last_version(database)
            for kind in ("worker", "server"):
                assert strike(kind, database, run)
                wait_until_seen(database, run)
            writing.stop()
            wait_until_right(database, run, since)
        finally:
            run.kill()
