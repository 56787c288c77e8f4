"""One materialized table under load: `python -m tests.table.materialized.under_load [--rounds N] [--seed SEED]`.

Orders arrive all the time, while the table goes through four values of its freshness (a stream, epochs, full refreshes,
a stream again) and two changes of its query, in a random order, is suspended, and loses its job. After each step the
orders pause, and the table becomes what a batch run of its query says. Where state is promised to be kept, it is.

Rounds that have passed are in `build/materialized/SEED.jsonl`: with the same `--seed` a run goes on with the next one.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from tests.servers.waiting import await_true
from tests.table.materialized.shop import Shop

QUERIES = (
    "SELECT k, COUNT(*) AS n FROM orders GROUP BY k",
    "SELECT k, COUNT(*) AS n, COUNT(*) * 2 AS m FROM orders GROUP BY k",  # has the state of the first
    "SELECT k, COUNT(*) AS n, SUM(v) AS m FROM orders WHERE v > 3 GROUP BY k",
)
STEPS = ("FRESHNESS 2", "FRESHNESS 5", "FRESHNESS 1", "QUERY 1", "QUERY 2", "SUSPEND", "LOSE")


class Load:
    """Orders that arrive until they are paused."""

    def __init__(self, shop: Shop, chance: random.Random, period_s: float) -> None:
        self._shop = shop
        self._chance = chance
        self._period_s = period_s
        self._gate = threading.Lock()
        self._is_over = threading.Event()
        self.count = 0

    def _run(self) -> None:
        while not self._is_over.wait(self._period_s):
            with self._gate:
                self.order(self._chance.randrange(1, 40))

    def order(self, count: int) -> None:
        """Let some orders arrive."""
        self._shop.order((self._chance.randrange(20), self._chance.randrange(10)) for _ in range(count))
        self.count += count

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let orders arrive in a thread."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no order arrive."""
        with self._gate:
            yield


def compare(shop: Shop, batch: Shop, load: Load) -> None:
    """The table becomes what a batch run of its query says."""
    with load.paused():
        expected = sorted(batch.rows(shop.definition().query), key=repr)
        await_true(lambda: shop.rows() == expected, f"{shop.definition()}: {shop.rows()} never become {expected}")


def run_round(here: Path, seed: int, period_s: float = 0.05) -> list[str]:
    """Run one round, and return its steps."""
    chance = random.Random(seed)
    shop, batch = Shop(here), Shop(here)
    batch.reader = batch.environment(is_batch=True)
    steps = list(STEPS)
    chance.shuffle(steps)
    steps.remove("QUERY 2")
    steps.insert(chance.randrange(steps.index("QUERY 1") + 1, len(steps) + 1), "QUERY 2")
    load = Load(shop, chance, period_s)
    load.order(20)
    with load.running():
        alter(
            shop,
            "CREATE MATERIALIZED TABLE lake.shop.m (PRIMARY KEY (k) NOT ENFORCED) FRESHNESS = INTERVAL '1' SECOND AS "
            f"{QUERIES[0]}",
        )
        compare(shop, batch, load)
        for step in [*steps, "FRESHNESS 1"]:
            before = shop.definition()
            take(shop, step, chance)
            after = shop.definition()
            is_kept = step != "QUERY 2"
            assert (after.name_suffix == before.name_suffix) == is_kept, step
            if is_kept and before.refresh_mode == after.refresh_mode == "CONTINUOUS" and step != "LOSE":
                assert after.savepoint not in ("", before.savepoint), step
            compare(shop, batch, load)
        alter(shop, "DROP MATERIALIZED TABLE lake.shop.m")
    return [*steps, f"{load.count} orders"]


def take(shop: Shop, step: str, chance: random.Random) -> None:
    """Take one step."""
    table = "ALTER MATERIALIZED TABLE lake.shop.m"
    kind, _, number = step.partition(" ")
    if kind == "FRESHNESS":
        alter(shop, f"{table} SET FRESHNESS = INTERVAL '{number}' SECOND")
    elif kind == "QUERY":
        alter(shop, f"{table} AS {QUERIES[int(number)]}")
    elif kind == "SUSPEND":
        alter(shop, f"{table} SUSPEND")
        time.sleep(chance.random())
        alter(shop, f"{table} RESUME")
    elif shop.definition().refresh_mode == "CONTINUOUS":
        shop.lose_job()
        alter(shop, f"{table} RESUME")


def alter(shop: Shop, sql: str) -> None:
    """Run a statement."""
    shop.tables.execute_sql(sql)


@click.command()
@click.option("--rounds", default=10, show_default=True)
@click.option("--seed", type=int)
def main(rounds: int, seed: int | None) -> None:
    """Run rounds, each with a seed of its own."""
    seed = random.randrange(2**32) if seed is None else seed
    click.echo(f"seed {seed}")
    results = Path(f"build/materialized/{seed}.jsonl")
    results.parent.mkdir(parents=True, exist_ok=True)
    done = len(results.read_text().splitlines()) if results.exists() else 0
    for number in range(done, rounds):
        with tempfile.TemporaryDirectory() as here:
            begin = time.monotonic()
            steps = run_round(Path(here), seed + number)
        with results.open("a") as file:
            file.write(json.dumps({"round": number, "steps": steps}) + "\n")
        click.echo(f"round {number}: {', '.join(steps)}, {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
