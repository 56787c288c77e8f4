"""`penstock try kafka` and `penstock try postgres`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rich.console import Console

from penstock.demo.busy import busy
from penstock.trial import kafka, postgres
from penstock.trial.serving import check_port, free_port, serve

_KAFKA_HEAP_MB: Final = 512


def try_kafka(port: int, console: Console) -> None:
    """Run Kafka until a signal ends it. Raises `PenstockError` if it cannot be run."""
    from penstock.connectors.kafka.library import require_library

    require_library()
    check_port(port)
    if not kafka.is_installed():
        with busy(console, f"fetching Kafka {kafka.VERSION} from Maven Central, once"):
            kafka.installation()

    def make(folder: Path) -> kafka.KafkaBroker:
        return kafka.KafkaBroker(1, {1: (port, free_port())}, folder, kafka.FOR_USERS, _KAFKA_HEAP_MB)

    serve(f"Kafka {kafka.VERSION}", f"localhost:{port}", port, make, console)


def try_postgres(port: int, console: Console) -> None:
    """Run PostgreSQL until a signal ends it. Raises `PenstockError` if it cannot be run."""
    programs = postgres.find_programs(os.environ)

    def make(folder: Path) -> postgres.PostgresServer:
        return postgres.PostgresServer(programs, folder, port)

    address = f"postgresql://{postgres.USER}@127.0.0.1:{port}/{postgres.USER}"
    serve(f"PostgreSQL {postgres.read_server_version(programs)}", address, port, make, console)
