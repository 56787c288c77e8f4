"""Exactly once with each protocol of transactions that brokers of Kafka 4 have, and the one that librdkafka speaks.

`transaction.version` is a feature of the cluster: 0 and 1 are the first protocol, and 2, the default since Kafka 4.0,
is KIP-890's, by which brokers raise the epoch of a producer whenever a transaction ends. A client speaks it from
version 5 of EndTxn on. `KafkaSink` ends transactions of other processes by producer id and epoch, so it depends on
both sides.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.connectors.kafka.programs import check
from tests.connectors.kafka.test_exactly_once import RECORDS, ended, start, values
from tests.servers.kafka import KafkaCluster, kafka_server

from penstock.cli.trial import servers

pytestmark = pytest.mark.slow

#: The first version of EndTxn that is of KIP-890's protocol.
RAISES_EPOCHS = 5


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_program_that_dies_amid_its_commits_is_made_whole_with_each_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    formatted = tmp_path / "installation"
    formatted.mkdir()
    (formatted / "jars").symlink_to(servers.installation() / "jars")
    servers._format_storage(formatted, f"transaction.version={level}")
    monkeypatch.setattr(servers, "installation", lambda: formatted)
    with kafka_server(tmp_path / "kafka") as kafka:
        topic = kafka.create_topic(partitions=3)
        code, text = ended(start(kafka, topic, tmp_path, rate=700, parallelism=2, die="amid the commit", after=2))
        assert (code, (tmp_path / "died").exists()) == (-9, True), text
        (tmp_path / "died").unlink()
        code, text = ended(start(kafka, topic, tmp_path, parallelism=1))
        assert code == 0, text
        check(RECORDS, values(kafka, topic))


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_librdkafka_speaks_the_first_protocol(kafka: KafkaCluster) -> None:
    """If this fails, librdkafka has learned KIP-890's protocol: look at `KafkaSink` with it, and then change this."""
    topic = kafka.create_topic()
    handler = Lines()
    logger = logging.getLogger("tests.connectors.kafka.protocol")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": f"of-{topic}",
        "debug": "protocol,feature",
    }
    producer = Producer(settings, logger=logger)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(30)
    producer.poll(0)
    known = re.search(r"EndTxn \(26\) Versions \d+\.\.(\d+)", "\n".join(handler.lines))
    assert known is not None, handler.lines[:50]
    assert int(known[1]) >= RAISES_EPOCHS, "the brokers would let it speak the other one"
    sent = re.findall(r"Sent (InitProducerId|AddPartitionsToTxn|EndTxn)Request \(v(\d+)", "\n".join(handler.lines))
    assert {name for name, _ in sent} == {"InitProducerId", "AddPartitionsToTxn", "EndTxn"}, handler.lines[:50]
    assert all(int(version) < RAISES_EPOCHS for name, version in sent if name == "EndTxn"), sent
