"""The example project over Kafka and PostgreSQL: twice, changed in between, and with a gateway that is killed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dbt.adapters.penstock.gateway import Gateway
from dbt.cli.main import dbtRunner

EXAMPLE = Path(__file__).parent.parent / "example"
WAIT_SECONDS = 90
#: The streaming jobs alone: after each kill, batch waits for a new Spark.
JOBS = "config.materialized:streaming_job"
CITIES = ["Delft", "Gouda", "Ghent"]

#: Runs in the Python that has Penstock, which has the clients of both servers: writes the orders from .. to.
PRODUCE = """
import json, sys
from datetime import datetime, timedelta
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    placed = datetime(2026, 5, 1, 12) + timedelta(seconds=number)
    order = {"id": number, "city": ["Delft", "Gouda", "Ghent"][number % 3], "cents": 100, "placed": str(placed)}
    producer.produce("orders", json.dumps(order))
producer.flush()
"""
CREATE_TABLE = """
import sys, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    connection.execute("CREATE TABLE city_totals (city text PRIMARY KEY, orders bigint, cents bigint)")
"""
READ_TOTALS = """
import json, sys, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    print(json.dumps(connection.execute("SELECT city, orders, cents FROM city_totals ORDER BY city").fetchall()))
"""
READ_MINUTES = """
import json, sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "test", "auto.offset.reset": "earliest",
                     "isolation.level": "read_committed"})
consumer.subscribe(["minute-takings"])
minutes, end = [], time.monotonic() + 15
while time.monotonic() < end:
    message = consumer.poll(0.5)
    if message is not None and message.error() is None:
        minutes.append(json.loads(message.value()))
        end = min(end, time.monotonic() + 4)
consumer.close()
print(json.dumps(minutes))
"""


def penstock_python() -> str:
    return os.environ.get("PENSTOCK_PYTHON", sys.executable)


def run_there(program: str, *arguments: object) -> str:
    command = [penstock_python(), "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def server(kind: str, log: Path) -> Iterator[int]:
    """Run `penstock try`, and yield its port."""
    port = free_port()
    command = [penstock_python(), "-m", "penstock.cli.main", "try", kind, "--port", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            end = time.monotonic() + WAIT_SECONDS
            while "serves at" not in log.read_text():
                if process.poll() is not None or time.monotonic() > end:
                    pytest.skip(f"penstock try {kind} does not start here: {log.read_text()[-500:]}")
                time.sleep(0.2)
            yield port
        finally:
            process.send_signal(signal.SIGINT)


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def dbt(self, *arguments: str, expect_pass: bool = True):
        """Run dbt, and return its results by the name of the node."""
        places = ["--project-dir", str(self.folder), "--profiles-dir", str(self.folder)]
        result = dbtRunner().invoke([*arguments, *places])
        assert result.success == expect_pass, result.exception or [r.message for r in result.result]
        return {r.node.name: r.message for r in getattr(result.result, "results", [])}

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def log(self) -> list[dict]:
        """Return the rows of `order_log`, as its files have them."""
        files = (self.folder / "data" / "tables" / "shop" / "order_log").rglob("part-*")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def project(tmp_path: Path, gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    if not hasattr(gateway, "end"):
        pytest.skip("kills the gateway, so it needs one of its own: unset PENSTOCK_GATEWAY_PORT")
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    with server("kafka", tmp_path / "kafka.log") as kafka, server("postgres", tmp_path / "postgres.log") as postgres:
        monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
        monkeypatch.setenv("KAFKA", f"localhost:{kafka}")
        monkeypatch.setenv("POSTGRES", f"postgresql://postgres@127.0.0.1:{postgres}/postgres")
        monkeypatch.setenv("GATEWAY_PORT", str(gateway.port))
        monkeypatch.setenv("SHOP_PATH", str(folder / "data"))
        run_there(CREATE_TABLE, os.environ["POSTGRES"])
        yield Project(folder)
        gateway.end()
        gateway.start()


def await_totals(expected: list[list]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while (totals := json.loads(run_there(READ_TOTALS, os.environ["POSTGRES"]))) != expected:
        assert time.monotonic() < end, f"expected {expected}, there are {totals}"
        time.sleep(0.5)


def await_job_that_is_gone(gateway, model: str) -> None:
    """Wait until the job of a model has stopped, and the one that follows it is about to start."""
    session = Gateway(f"http://127.0.0.1:{gateway.port}").open({})
    end = time.monotonic() + WAIT_SECONDS
    while any(row[1].startswith(f"dbt.shop.{model}#") and row[2] == "RUNNING" for row in session.run("SHOW JOBS").rows):
        assert time.monotonic() < end
        time.sleep(0.05)


def totals_of(count: int) -> list[list]:
    each = {city: len(range(index, count, 3)) for index, city in enumerate(CITIES)}
    return [[city, orders, 100 * orders] for city, orders in sorted(each.items())]


def test_no_state_is_lost_and_no_row_comes_twice(project: Project, gateway) -> None:
    run_there(PRODUCE, os.environ["KAFKA"], 0, 300)
    assert "INSERT 4" in project.dbt("seed")["cities"]
    first = project.dbt("run")
    assert "begins: RUNNING" in first["city_totals"]
    await_totals(totals_of(300))

    # again: the jobs go on, and the tables are built anew
    again = project.dbt("run")
    assert "unchanged: RUNNING" in again["city_totals"]
    assert again["city_totals"].split()[1] == first["city_totals"].split()[1]
    run_there(PRODUCE, os.environ["KAFKA"], 300, 600)
    await_totals(totals_of(600))

    # one model changes, so that its state fits; then the gateway is killed while orders arrive
    project.replace("models/order_log.sql", "upper(city)", "lower(city)")
    changed = project.dbt("run")
    assert "continues with the changed query" in changed["order_log"]
    assert "unchanged: RUNNING" in changed["minute_takings"]
    for begin in (600, 900):
        run_there(PRODUCE, os.environ["KAFKA"], begin, begin + 300)
        gateway.end(signal.SIGKILL)
        gateway.start()
        resumed = project.dbt("run", "--select", JOBS)
        assert all("resumes: RUNNING" in resumed[job] for job in ("order_log", "city_totals", "minute_takings"))
        await_totals(totals_of(begin + 300))

    # the gateway is killed during a run
    run_there(PRODUCE, os.environ["KAFKA"], 1200, 1500)
    places = ["--project-dir", project.folder, "--profiles-dir", project.folder]
    command = [sys.executable, "-m", "dbt.cli.main", "run", "--select", JOBS, *map(str, places)]
    project.replace("models/order_log.sql", "lower(city)", "city")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        await_job_that_is_gone(gateway, "order_log")
        gateway.end(signal.SIGKILL)
        gateway.start()
        run.wait(120)
    project.dbt("run")
    await_totals(totals_of(1500))

    # each order once, each minute once
    end = time.monotonic() + WAIT_SECONDS
    while len(project.log()) < 1500 and time.monotonic() < end:
        time.sleep(0.5)
    assert sorted(row["id"] for row in project.log()) == list(range(1500))
    minutes = json.loads(run_there(READ_MINUTES, os.environ["KAFKA"]))
    assert [minute["minute_start"] for minute in minutes] == sorted({minute["minute_start"] for minute in minutes})
    assert {(minute["orders"], minute["cents"]) for minute in minutes} == {(60, 6000)}
    assert len(minutes) == 24  # the last one waits for the watermark

    # tests, tables and documents
    project.dbt("test")
    project.dbt("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())
    assert set(catalog["nodes"]) >= {f"model.shop.{name}" for name in ("valid_orders", "city_totals", "country_totals")}
    assert "source.shop.raw.orders" in catalog["sources"]
