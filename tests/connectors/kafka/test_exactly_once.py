"""Exactly once into a real Kafka: the program dies at each step, at changing parallelism, and the broker dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.kafka.programs import KEYS, STEPS, check
from tests.servers.kafka import KafkaCluster, kafka_cluster, kafka_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
RECORDS = 3_000


def start(kafka: KafkaCluster, topic: str, folder: Path, **arguments: Any) -> subprocess.Popen[str]:
    given = {"servers": kafka.bootstrap_servers, "topic": topic, "folder": str(folder), "records": RECORDS, **arguments}
    command = [sys.executable, "-m", "tests.connectors.kafka.programs", json.dumps(given)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, text = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        _, text = process.communicate()
        pytest.fail(f"the program did not end:\n{text}")
    return process.returncode, text


def values(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    return [message.value() for message in kafka.read(topic)]


@pytest.mark.parametrize("step", STEPS)
def test_a_program_that_dies_at_any_step_is_followed_by_one_that_makes_it_whole(
    kafka: KafkaCluster, tmp_path: Path, step: str
) -> None:
    """And the next one runs at another parallelism."""
    topic = kafka.create_topic(partitions=3)
    for parallelism, after in ((2, 2), (3, 5)):
        code, text = ended(start(kafka, topic, tmp_path, rate=700, parallelism=parallelism, die=step, after=after))
        assert (code, (tmp_path / "died").exists()) == (-9, True), text
        (tmp_path / "died").unlink()
    code, text = ended(start(kafka, topic, tmp_path, parallelism=1))
    assert code == 0, text
    check(RECORDS, values(kafka, topic))


def test_a_broker_that_is_killed_and_comes_back_changes_nothing(tmp_path: Path) -> None:
    with kafka_server(tmp_path / "kafka") as kafka:
        topic = kafka.create_topic(partitions=2)
        process = start(kafka, topic, tmp_path, rate=500)
        for _ in range(2):
            time.sleep(2.5)
            kafka.kill()
            time.sleep(0.5)
            kafka.start()
        code, text = ended(process)
        assert code == 0, text
        check(RECORDS, values(kafka, topic))


def test_three_brokers_are_killed_one_after_another(tmp_path: Path) -> None:
    """So coordinators and leaders move; what was written survives on the two others."""
    with kafka_cluster(tmp_path / "kafka") as kafka:
        topic = kafka.create_topic(partitions=3)
        process = start(kafka, topic, tmp_path, rate=250)
        for number in range(3):
            time.sleep(1.5)
            kafka.kill(number)
            time.sleep(0.5)
            kafka.start(number)
        code, text = ended(process)
        assert code == 0, text
        check(RECORDS, values(kafka, topic))


def test_micro_batches_are_exactly_once_through_the_death_of_their_driver(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    for after in (1, 3):
        code, text = ended(
            start(kafka, topic, tmp_path, mode="MICRO_BATCH", rate=1_000, die="amid the commit", after=after)
        )
        assert code == -9, text
    code, text = ended(start(kafka, topic, tmp_path, mode="MICRO_BATCH", rate=1_000))
    assert code == 0, text
    check(RECORDS, values(kafka, topic))


def test_a_batch_is_seen_when_it_has_ended(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    code, text = ended(start(kafka, topic, tmp_path, mode="BATCH"))
    assert code == 0, text
    assert len(values(kafka, topic)) == RECORDS


def test_a_batch_whose_driver_dies_amid_its_commits_is_seen_by_subtasks(kafka: KafkaCluster, tmp_path: Path) -> None:
    """G9: what a subtask wrote is one transaction, seen whole or not at all; the next run writes everything again."""
    topic = kafka.create_topic(partitions=2)
    code, text = ended(start(kafka, topic, tmp_path, mode="BATCH", die="amid the commit", after=0))
    assert code == -9, text
    seen = [tuple(json.loads(value)) for value in values(kafka, topic) if value is not None]
    keys = {key for key, _, _ in seen}
    assert 0 < len(keys) < KEYS
    assert sorted(index for _, _, index in seen) == [n for n in range(RECORDS) if n % KEYS in keys]
    code, text = ended(start(kafka, topic, tmp_path, mode="BATCH"))
    assert code == 0, text
    found = [json.loads(value)[2] for value in values(kafka, topic) if value is not None]
    assert sorted(found) == sorted([*range(RECORDS), *(index for _, _, index in seen)])


def test_a_batch_with_one_subtask_at_its_sink_is_seen_whole_or_not_at_all(kafka: KafkaCluster, tmp_path: Path) -> None:
    """G9: it is one transaction."""
    topic = kafka.create_topic(partitions=2)
    code, text = ended(start(kafka, topic, tmp_path, mode="BATCH", parallelism=1, die="before the commit", after=0))
    assert code == -9, text
    assert values(kafka, topic) == []
    code, text = ended(start(kafka, topic, tmp_path, mode="BATCH", parallelism=1))
    assert code == 0, text
    check(RECORDS, values(kafka, topic))


def test_readers_do_not_wait_for_what_a_dead_program_left_open(kafka: KafkaCluster, tmp_path: Path) -> None:
    """A program that died is followed by one whose records are seen long before the time-out of the first one's."""
    topic = kafka.create_topic()
    code, _ = ended(start(kafka, topic, tmp_path, rate=1_000, die="after it was prepared", after=3))
    assert code == -9
    process = start(kafka, topic, tmp_path, rate=300)
    seen = threading.Event()
    deadline = time.monotonic() + 60
    while not seen.is_set() and time.monotonic() < deadline:
        found = [json.loads(value)[2] for value in values(kafka, topic) if value is not None]
        if len(found) > 600:
            seen.set()
        time.sleep(0.2)
    process.kill()
    process.communicate()
    assert seen.is_set()
