"""Materialized tables over HTTP: refreshes as operations, and workflows of the embedded scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.gateway.rig import Client, gateway, last_cause

SCHEDULER = "/v3/workflow/embedded-scheduler"
WORKFLOW = {
    "workflowName": "quartz_job_`default_catalog`.`default_database`.`m`",
    "workflowGroup": "default_group",
}
MIDNIGHT = {"materializedTableIdentifier": "default_catalog.default_database.m", "cronExpression": "0 0 0 * * ? *"}


@pytest.fixture
def client() -> Iterator[Client]:
    with gateway() as running:
        yield running


@pytest.fixture
def session(client: Client, tmp_path: Path) -> Iterator[str]:
    """A session with a continuous table `m` of files."""
    opened = client.open("v3")
    (tmp_path / "in").mkdir()
    files = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}"
    assert client.rows(
        opened, f"CREATE TABLE src (k INT, day_of STRING) WITH ({files}/in', 'source.monitor-interval' = '1 s')"
    ) == [["OK"]]
    assert client.rows(
        opened, f"CREATE MATERIALIZED TABLE m PARTITIONED BY (day_of) WITH ({files}/out') AS SELECT k, day_of FROM src"
    ) == [["OK"]]
    yield opened
    client.rows(opened, "DROP MATERIALIZED TABLE IF EXISTS m")


def refused(client: Client, session: str, table: str, **body: Any) -> str:
    """Why the refresh of a table fails."""
    path = f"{session}/materialized-tables/{table}/refresh"
    handle = client.json("POST", path, {"isPeriodic": False, **body})["operationHandle"]
    while True:
        code, text = client.ask("GET", f"{session}/operations/{handle}/result/0")
        if code != 200:
            return last_cause(text)


def test_a_refresh_that_cannot_be_is_an_operation_that_fails(client: Client, session: str) -> None:
    assert "Cannot find table '`default_catalog`.`default_database`.`nosuch`'" in refused(client, session, "nosuch")
    assert "is not a materialized table" in refused(client, session, "src")
    assert "The scheduler time must not be null during the periodic refresh of the materialized table `m`." in refused(
        client, session, "m", isPeriodic=True
    )
    assert "The partition spec contains unknown partition keys" in refused(
        client, session, "m", staticPartitions={"k": "1"}
    )
    assert "would append rows that the refresh has written already" in refused(
        client, session, "m", staticPartitions={"day_of": "x"}
    )


def failure(client: Client, method: str, path: str, body: dict[str, Any]) -> str:
    code, text = client.ask(method, f"{SCHEDULER}/{path}", body)
    assert code == 500
    return last_cause(text)


def test_workflows_of_the_embedded_scheduler(client: Client, session: str) -> None:
    """The answers are those of Flink 2.3 for the same calls, but that the table has to exist."""
    nosuch = {**MIDNIGHT, "materializedTableIdentifier": "nosuch"}
    assert "no open session of the gateway has a materialized table" in failure(client, "POST", "create", nosuch)
    bogus = {**MIDNIGHT, "cronExpression": "bogus"}
    assert "CronExpression 'bogus' is invalid." in failure(client, "POST", "create", bogus)
    assert client.json("POST", f"{SCHEDULER}/create", MIDNIGHT) == WORKFLOW
    assert (
        "Materialized table `default_catalog`.`default_database`.`m` quartz schedule job already exist, job info: "
        "default_group.quartz_job_`default_catalog`.`default_database`.`m`."
    ) in failure(client, "POST", "create", MIDNIGHT)
    for verb in ("suspend", "suspend", "resume", "resume"):
        assert client.json("POST", f"{SCHEDULER}/{verb}", WORKFLOW) == {}
    for _ in range(2):
        assert client.json("DELETE", f"{SCHEDULER}/delete", WORKFLOW) == {}
    for verb in ("suspend", "resume"):
        assert f"Failed to {verb} a non-existent quartz schedule job: default_group.quartz_job_" in failure(
            client, "POST", verb, WORKFLOW
        )
