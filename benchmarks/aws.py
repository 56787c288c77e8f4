"""Sources and sinks of AWS beside a bare boto3 that does the same.

`python -m benchmarks.aws kinesis dynamodb sqs` starts the servers of the tests. From Kinesis it reads texts, and JSON
as the rows of a table, beside a loop over `get_records` that decodes them; and it writes texts, and rows of a table as
JSON, beside `put_records` with 500 records each. Rows go into a table of DynamoDB beside `batch_write_item`, and texts
into a queue of SQS beside `send_message_batch`; one request is in flight. Both take turns, in one process. It prints
the processor time of this process, and how many times as fast as the bare client Penstock is.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import boto3
import pyarrow as pa
from tests.servers.aws import AwsServer, create_stream, kinesis_server, moto_server, queue_server
from tests.table.connectors.tables import build_reader, writer_of

from benchmarks.change_logs import Way, compare
from penstock.codecs.column_data import ColumnData
from penstock.common import SimpleStringSchema
from penstock.datastream.connectors.kinesis import KinesisStreamsSink, KinesisStreamsSource, PartitionKeyGenerator
from penstock.datastream.connectors.sqs import SqsSink
from penstock.runtime.records import Batch
from penstock.testing.connectors import SinkHost, SourceRun

AT_ONCE = 4_096
ENTRIES = 500
COLUMNS = "id BIGINT, customer STRING, quantity INT, price DOUBLE, note STRING"
NAMES = ("id", "customer", "quantity", "price", "note")
KINDS = (pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.string())

Row = tuple[Any, ...]


def make_rows(count: int) -> list[Row]:
    return [(n, f"customer {n % 997}", n % 13, n / 7, f"a note about order {n}, of some length") for n in range(count)]


def connect(server: AwsServer, service: str) -> Any:
    """A client with the settings of the library."""
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id="access",
        aws_secret_access_key="let-me-in-12",
    )


def parts(records: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(records), size):
        yield records[start : start + size]


def write_records(sink: Any, records: Sequence[Any]) -> None:
    writer = sink.create_writer(SinkHost())
    for batch in parts(records, AT_ONCE):
        writer.write_batch(list(batch), None)
    writer.prepare_commit()
    writer.close()


def write_rows(sink: Any, rows: Sequence[Row]) -> None:
    writer: Any = sink.create_writer(SinkHost())
    for batch in parts(rows, AT_ONCE):
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*batch, strict=True), KINDS, strict=True)]
        writer.write_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, list(NAMES))), None)
    writer.prepare_commit()
    writer.close()


class Kinesis:
    """A stream with texts, and one with rows as JSON."""

    def __init__(self, server: AwsServer, count: int) -> None:
        self.server, self.count = server, count
        self.rows = make_rows(count)
        self.texts = [row[4] for row in self.rows]
        self.documents = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in self.rows]
        self.arns = {name: create_stream(server, name) for name in ("texts", "documents", "sink")}
        self.write_bare("texts", self.texts)
        self.write_bare("documents", self.documents)

    def ddl(self, name: str) -> str:
        return (
            f"CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'kinesis', 'format' = 'json', {self.server.sql}, "
            f"'sink.requests.max-inflight' = '1', 'stream.arn' = '{self.arns[name]}', "
            "'source.init.position' = 'TRIM_HORIZON')"
        )

    def read_texts(self) -> None:
        config = {**self.server.properties, "source.init.position": "TRIM_HORIZON"}
        builder = KinesisStreamsSource.builder().set_stream_arn(self.arns["texts"]).set_source_config(config)
        self.read(builder.set_deserialization_schema(SimpleStringSchema()).build())

    def read_rows(self) -> None:
        self.read(build_reader(self.ddl("documents")).source)

    def read(self, source: Any) -> None:
        run, left = SourceRun(source, real_time=True), self.count
        while not run.readers[0]._readings:  # type: ignore[attr-defined]
            run.advance(AT_ONCE)
        left -= len(run.arrived)
        while left > 0:
            run.hosts[0].now = int(time.time() * 1_000)
            batch = run.readers[0].poll_next(AT_ONCE)
            if isinstance(batch, Batch):
                left -= len(batch)
            else:
                time.sleep(0.005)
        run.close()

    def read_bare(self, name: str, decode: Callable[[bytes], Any]) -> None:
        client, arn = connect(self.server, "kinesis"), self.arns[name]
        shard = client.list_shards(StreamARN=arn)["Shards"][0]["ShardId"]
        answer = client.get_shard_iterator(StreamARN=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        records: list[Any] = []
        iterator = answer["ShardIterator"]
        while len(records) < self.count:
            answer = client.get_records(StreamARN=arn, ShardIterator=iterator)
            records += [decode(record["Data"]) for record in answer["Records"]]
            iterator = answer["NextShardIterator"]
        client.close()

    def write_texts(self) -> None:
        builder = KinesisStreamsSink.builder().set_stream_arn(self.arns["sink"])
        builder = builder.set_kinesis_client_properties(self.server.properties)
        builder = builder.set_serialization_schema(SimpleStringSchema()).set_max_in_flight_requests(1)
        write_records(builder.set_partition_key_generator(PartitionKeyGenerator.random()).build(), self.texts)

    def write_bare(self, name: str, texts: Sequence[str]) -> None:
        client = connect(self.server, "kinesis")
        for batch in parts(texts, ENTRIES):
            records = [{"Data": text.encode(), "PartitionKey": f"{random.getrandbits(128):032x}"} for text in batch]
            if client.put_records(StreamARN=self.arns[name], Records=records)["FailedRecordCount"]:
                raise SystemExit("the service refuses records")
        client.close()

    def write_bare_rows(self) -> None:
        self.write_bare("sink", [json.dumps(dict(zip(NAMES, row, strict=True))) for row in self.rows])

    def contests(self) -> dict[str, tuple[Way, Way]]:
        sink = writer_of(self.ddl("sink")).sink
        return {
            "kinesis, read texts": (self.read_texts, lambda: self.read_bare("texts", bytes.decode)),
            "kinesis, read rows of JSON": (self.read_rows, lambda: self.read_bare("documents", json.loads)),
            "kinesis, write texts": (self.write_texts, lambda: self.write_bare("sink", self.texts)),
            "kinesis, write rows as JSON": (lambda: write_rows(sink, self.rows), self.write_bare_rows),
        }


class DynamoDb:
    """A table with the key `id`."""

    def __init__(self, server: AwsServer, count: int) -> None:
        self.server, self.rows = server, make_rows(count)
        server.connect("dynamodb").create_table(
            TableName="orders",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )

        self.sink = writer_of(
            f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'dynamodb', "
            f"'table-name' = 'orders', 'sink.requests.max-inflight' = '1', {server.sql})"
        ).sink

    def write(self) -> None:
        write_rows(self.sink, self.rows)

    def write_bare(self) -> None:
        client = connect(self.server, "dynamodb")
        for batch in parts(self.rows, 25):
            requests = []
            for number, customer, quantity, price, note in batch:
                item = {
                    "id": {"N": str(number)},
                    "customer": {"S": customer},
                    "quantity": {"N": str(quantity)},
                    "price": {"N": repr(price)},
                    "note": {"S": note},
                }
                requests.append({"PutRequest": {"Item": item}})
            if client.batch_write_item(RequestItems={"orders": requests})["UnprocessedItems"]:
                raise SystemExit("the service refuses items")
        client.close()

    def contests(self) -> dict[str, tuple[Way, Way]]:
        return {"dynamodb, write rows": (self.write, self.write_bare)}


class Queue:
    """A queue of SQS."""

    def __init__(self, server: AwsServer, count: int) -> None:
        self.server, self.texts = server, [row[4] for row in make_rows(count)]
        self.url = server.connect("sqs").create_queue(QueueName="orders")["QueueUrl"]

    def write(self) -> None:
        builder = SqsSink.builder().set_sqs_url(self.url).set_sqs_client_properties(self.server.properties)
        builder = builder.set_serialization_schema(SimpleStringSchema()).set_max_in_flight_requests(1)
        write_records(builder.build(), self.texts)

    def write_bare(self) -> None:
        client = connect(self.server, "sqs")
        for batch in parts(self.texts, 10):
            entries = [{"Id": str(number), "MessageBody": text} for number, text in enumerate(batch)]
            if client.send_message_batch(QueueUrl=self.url, Entries=entries).get("Failed"):
                raise SystemExit("the service refuses messages")
        client.close()

    def contests(self) -> dict[str, tuple[Way, Way]]:
        return {"sqs, write texts": (self.write, self.write_bare)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="+", choices=("kinesis", "dynamodb", "sqs"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="a part of the names of what is compared")
    arguments = parser.parse_args()
    servers: dict[str, tuple[Any, type[Any], int]] = {
        "kinesis": (kinesis_server, Kinesis, arguments.rows),
        "dynamodb": (moto_server, DynamoDb, arguments.rows // 4),
        "sqs": (queue_server, Queue, arguments.rows // 4),
    }
    for service in arguments.services:
        start, contest, count = servers[service]
        with start() as server:
            for name, ways in contest(server, count).contests().items():
                if arguments.only in name:
                    compare(name, count, arguments.runs, lambda ways=ways: ways)  # type: ignore[misc]


if __name__ == "__main__":
    main()
