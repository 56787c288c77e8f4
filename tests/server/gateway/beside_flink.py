"""Flink's clients at Penstock's gateway and at a real Flink's, compared line by line.

python -m tests.server.gateway.beside_flink --flink HOST:PORT [--penstock HOST:PORT] [--record] [--only PART]

It runs the recorded calls, the program of JDBC and the files of the SQL client against both. Without `--penstock` it
starts a gateway with the local target. `--record` writes what came back from the real Flink into `flink_shows`, which
the tests compare with. It exits with 1 if something differs that `docs/sql-gateway.md` does not list.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.server.gateway.flink_clients import HERE, SCRIPTS, find_flink, run_jdbc, run_sql_client, without_causes
from tests.server.gateway.replay import CONVERSATIONS, replay
from tests.server.gateway.rig import LOCAL, Client

from penstock.base.configuration import Configuration
from penstock.cli.gateway.engine import Gateway
from penstock.server.attachment import dispatcher

SHOWN: Final = HERE / "flink_shows"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextmanager
def penstock_at(address: str | None) -> Iterator[int]:
    """The port of Penstock's gateway, which is started unless there is an address."""
    if address is not None:
        yield port_of(address)
        return
    with Gateway(Configuration.from_dict(LOCAL), dispatcher()) as gateway:
        yield gateway.server.context.port


def replay_at(port: int) -> list[str]:
    client = Client(f"http://127.0.0.1:{port}")
    return [line for name in CONVERSATIONS for line in replay(client, name)]


def compare(name: str, run: Callable[[int], list[str]], flink: int, penstock: int, records: bool) -> int:
    """Run something at both, print what differs, and return the number of differing lines."""
    expected, found = run(flink), run(penstock)
    if records:
        SHOWN.mkdir(exist_ok=True)
        (SHOWN / f"{name}.txt").write_text("\n".join(expected) + "\n")
    differences = [
        line
        for line in difflib.unified_diff(
            without_causes(expected), without_causes(found), "flink", "penstock", "", "", 0
        )
        if not line.startswith(("---", "+++", "@@"))
    ]
    print(f"{name}: {len(expected)} lines, {len(differences)} differ", flush=True)
    for line in differences:
        print(f"    {line}")
    return len(differences)


def main() -> int:
    """Compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", required=True, metavar="HOST:PORT")
    parser.add_argument("--penstock", metavar="HOST:PORT")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", choices=["calls", "jdbc", "client"])
    given = parser.parse_args()
    home = find_flink()
    total = 0
    with penstock_at(given.penstock) as penstock, tempfile.TemporaryDirectory() as directory:
        flink = port_of(given.flink)
        if given.only in (None, "calls"):
            total += compare("calls", replay_at, flink, penstock, given.record)
        if given.only in (None, "jdbc"):
            total += compare("jdbc", run_jdbc, flink, penstock, given.record)
        if given.only in (None, "client"):
            if home is None:
                parser.error("the SQL client needs a Flink: set FLINK_HOME")
            for script in SCRIPTS:

                def run(port: int, script: Path = script) -> list[str]:
                    return run_sql_client(home, port, script, Path(directory))

                total += compare(script.stem, run, flink, penstock, given.record)
    print(f"{total} lines differ" if total else "nothing differs", flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
