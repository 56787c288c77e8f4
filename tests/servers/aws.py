"""Servers that stand for services of AWS, each on a port of loopback, in memory, which tests may suspend.

- kinesis-local (npm) for Kinesis, which splits and merges shards as the service does;
- ElasticMQ (Maven) for SQS, with first-in-first-out queues;
- moto (Python) for DynamoDB, Firehose and SQS. Its Kinesis takes records into closed shards, which never end.

`python -m tests.servers.install` fetches kinesis-local; `python -m tests.servers.aws` fetches ElasticMQ too (37 MiB).
Tests whose server is not there are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.servers.ports import free_port
from tests.servers.waiting import await_true

from penstock.base.errors import PenstockError
from penstock.cli.trial.servers import cache, installed, java, made_once
from penstock.connectors.aws.client import AwsSettings

KINESIS: Final = "kinesis-local-0.6.2"
ELASTICMQ: Final = "elasticmq-1.6.12"
REGION: Final = "us-east-1"
_QUEUES: Final = """include classpath("application.conf")
node-address {{ protocol = http, host = localhost, port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
"""


def install_kinesis() -> Path:
    """The directory with kinesis-local, fetched once into the user's cache."""

    def fill(directory: Path) -> None:
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), "kinesis-local@0.6.2"]
        subprocess.run(command, check=True, capture_output=True)

    return made_once(KINESIS, fill)


def install_elasticmq() -> Path:
    """The directory with ElasticMQ, fetched once into the user's cache."""
    return installed(ELASTICMQ, ["org.elasticmq:elasticmq-server_2.13:1.6.12"])


class AwsServer:
    """A server that answers at `endpoint` once it has started. `suspend` and `resume` stand for its failures."""

    def __init__(self, command: list[str], port: int, directory: Path, variables: Mapping[str, str], cwd: Path) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = directory / "log"
        with self._log.open("ab") as log:
            environment = {**os.environ, **variables}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=cwd)

    @property
    def properties(self) -> dict[str, str]:
        """What sources and sinks need to connect."""
        return {
            "aws.region": REGION,
            "aws.endpoint": self.endpoint,
            "aws.credentials.basic.accesskeyid": "access",
            "aws.credentials.basic.secretkey": "let-me-in-12",
        }

    @property
    def sql(self) -> str:
        """The same as options of a table."""
        return ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())

    def connect(self, service: str) -> Any:
        return AwsSettings(self.properties).connect(service, "tests")

    def await_up(self, service: str, question: str) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, self._log.read_text()[-3000:]
            with suppress(Exception):
                getattr(self.connect(service), question)()
                return True
            return False

        await_true(answers, f"the server of {service} does not answer: {self._log.read_text()[-3000:]}")

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def _running(
    command: list[str], port: int, service: str, question: str, variables: Mapping[str, str], cwd: Path | None = None
) -> Iterator[AwsServer]:
    with tempfile.TemporaryDirectory(prefix="penstock-aws-") as name:
        server = AwsServer(command, port, Path(name), variables, cwd or Path(name))
        try:
            server.await_up(service, question)
            yield server
        finally:
            server.stop()


@contextmanager
def kinesis_server() -> Iterator[AwsServer]:
    """One that answers. Skips the test where it is not installed."""
    pytest.importorskip("boto3", reason="the package boto3 is not installed: pip install 'penstock-streams[aws]'")
    program, node = cache() / KINESIS / "node_modules/kinesis-local", shutil.which("node")
    if not program.exists() or node is None:
        pytest.skip("kinesis-local is not installed: python -m tests.servers.install, with npm and node")
    port = free_port()
    variables = {
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(free_port()),
        "LOG_LEVEL": "WARN",
        **{f"{name}_DURATION": "1ms" for name in ("CREATE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS")},
        "SHARD_LIMIT": "500",
    }
    # it looks for its certificate in the directory where it is started
    with _running([node, "main.js"], port, "kinesis", "list_streams", variables, program) as server:
        yield server


@contextmanager
def queue_server() -> Iterator[AwsServer]:
    """ElasticMQ. Skips the test where it is not installed."""
    pytest.importorskip("boto3", reason="the package boto3 is not installed: pip install 'penstock-streams[aws]'")
    home, port = cache() / ELASTICMQ, free_port()
    if not home.exists():
        pytest.skip("ElasticMQ is not installed: python -m tests.servers.aws")
    try:
        program = java()
    except PenstockError as error:
        pytest.skip(f"ElasticMQ needs Java: {error}")
    with tempfile.TemporaryDirectory(prefix="penstock-sqs-") as name:
        configuration = Path(name, "queues.conf")
        configuration.write_text(_QUEUES.format(port=port))
        options = ["-Xmx256m", "-XX:+UseSerialGC", f"-Dconfig.file={configuration}", "-cp", f"{home}/jars/*"]
        command = [program, *options, "org.elasticmq.server.Main"]
        with _running(command, port, "sqs", "list_queues", {}) as server:
            yield server


@contextmanager
def moto_server() -> Iterator[AwsServer]:
    """Moto, as a process of its own. Skips the test where it is not installed."""
    pytest.importorskip("boto3", reason="the package boto3 is not installed: pip install 'penstock-streams[aws]'")
    pytest.importorskip("moto.server", reason="the package moto is not installed: pip install 'moto[server]'")
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, "dynamodb", "list_tables", {}) as server:
        yield server


def create_stream(server: AwsServer, name: str, shards: int = 1) -> str:
    """Create a stream; return its ARN when it is active."""
    kinesis = server.connect("kinesis")
    kinesis.create_stream(StreamName=name, ShardCount=shards)
    return await_active(kinesis, name)


def await_active(kinesis: Any, name: str) -> str:
    """Return the ARN of a stream once it is not being changed any more."""
    while True:
        summary = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        if summary["StreamStatus"] == "ACTIVE":
            return str(summary["StreamARN"])
        time.sleep(0.02)


if __name__ == "__main__":
    install_kinesis()
    install_elasticmq()
