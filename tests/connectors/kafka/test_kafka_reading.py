"""What a Kafka source reads, from where to where."""

from __future__ import annotations

from tests.connectors.kafka.reading import EARLIEST, LATEST, read_to_end, texts
from tests.servers.kafka import KafkaCluster


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def test_a_bounded_source_reads_each_partition_once_in_order_and_ends(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, numbers(100 * partition, 100 * partition + 100), partition)
    source = texts(kafka, topic).set_starting_offsets(EARLIEST).set_bounded(LATEST).build()
    for parallelism, hostile in ((1, False), (2, False), (4, True)):
        read = read_to_end(source, parallelism, batch_size=30, hostile=hostile)
        values = [int(value) for value in read.all_values]
        assert sorted(values) == list(range(300))
        for partition in range(3):
            of_partition = [value for value in values if value // 100 == partition]
            assert of_partition == sorted(of_partition)
