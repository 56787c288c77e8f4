"""Kinesis → keyed state → Kinesis, DynamoDB or SQS, through SIGKILLs at random moments.

`python -m tests.connectors.aws.kills --sink dynamodb --kills 20` adds numbers to a stream at a rate, and splits and
merges its shards meanwhile. A job numbers the records of each key, and writes them (`pipeline`). Again and again a
worker or the driver with the job master gets SIGKILL, or the servers are suspended for a moment: they keep their data
in memory, so they cannot be killed. A driver is followed by a new one. In the end each number must be there with the
number that it has among those of its key, which shows that they came in order through all splits and merges; a stream
and a queue may have it several times, a table once. The seed that it prints makes the choice of the victims and the
pauses the same again.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
from tests.connectors.kafka.kills import PATIENCE_S, Job, await_records, kill_again_and_again
from tests.connectors.kafka.programs import KEYS
from tests.servers.aws import AwsServer, create_stream, kinesis_server, moto_server, queue_server

#: How often each is the victim; the broker stands for the servers.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}
SHARDS_MAX = 6


class Feeder(threading.Thread):
    """Adds numbers to a stream at a rate, each with its key, and reshards the stream now and then."""

    def __init__(self, server: AwsServer, arn: str, rate: float, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._kinesis, self._arn, self._rate, self._chance = server.connect("kinesis"), arn, rate, chance
        self._stopping = threading.Event()
        self.count = self.reshardings = 0

    def run(self) -> None:
        begun, resharded = time.monotonic(), time.monotonic()
        while not self._stopping.wait(0.1):
            due = min(int((time.monotonic() - begun) * self._rate), self.count + 500)
            while self.count < due:
                self._put(self.count)
            if time.monotonic() - resharded > 3:
                with suppress(Exception):  # the stream is still being changed
                    self._reshard()
                resharded = time.monotonic()

    def _put(self, number: int) -> None:
        """Put a number, and up to 99 that follow; each key has one of them, so that none overtakes another."""
        numbers = range(number, min(number + KEYS, number + 100))
        records = [{"Data": str(n).encode(), "PartitionKey": str(n % KEYS)} for n in numbers]
        while records:
            answer = self._kinesis.put_records(StreamARN=self._arn, Records=records)
            pairs = zip(records, answer["Records"], strict=True)
            records = [record for record, answered in pairs if answered.get("ErrorCode")]
        self.count += len(numbers)

    def _reshard(self) -> None:
        shards = self._kinesis.list_shards(StreamARN=self._arn)["Shards"]
        open_shards = [each for each in shards if "EndingSequenceNumber" not in each["SequenceNumberRange"]]
        open_shards.sort(key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))
        if len(open_shards) > 1 and (len(open_shards) >= SHARDS_MAX or self._chance.random() < 0.5):
            place = self._chance.randrange(len(open_shards) - 1)
            pair = [open_shards[place]["ShardId"], open_shards[place + 1]["ShardId"]]
            self._kinesis.merge_shards(StreamARN=self._arn, ShardToMerge=pair[0], AdjacentShardToMerge=pair[1])
        else:
            shard = self._chance.choice(open_shards)
            keys = shard["HashKeyRange"]
            middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
            self._kinesis.split_shard(
                StreamARN=self._arn, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
            )
        self.reshardings += 1

    def stop(self) -> int:
        """No more; returns how many there are."""
        self._stopping.set()
        self.join()
        return self.count


class Output:
    """What came out, read again and again; `records` counts each."""

    def __init__(self, server: AwsServer, kind: str) -> None:
        self._kind, self._service = kind, server.connect({"queue": "sqs"}.get(kind, kind))
        self.records: Counter[tuple[int, int, int]] = Counter()
        self._iterators: dict[str, str | None] = {}
        if kind == "kinesis":
            self.place = create_stream(server, "out", 2)
        elif kind == "dynamodb":
            self.place = "out"
            self._service.create_table(
                TableName="out",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "value", "AttributeType": "N"}],
                KeySchema=[{"AttributeName": "value", "KeyType": "HASH"}],
            )
        else:
            created = self._service.create_queue(QueueName="out.fifo", Attributes={"FifoQueue": "true"})
            self.place = created["QueueUrl"]

    def count(self) -> int:
        """Read what there is; return how many different records there are."""
        try:
            {"kinesis": self._read_stream, "dynamodb": self._read_table}.get(self._kind, self._read_queue)()
        except OSError:  # the server is away
            pass
        except self._service.exceptions.ClientError as error:  # a scan of moto fails while items are written
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise
        return len(self.records)

    def _note(self, text: str) -> None:
        key, number, value = map(int, text.split())
        self.records[key, number, value] += 1

    def _read_stream(self) -> None:
        for shard in self._service.list_shards(StreamARN=self.place)["Shards"]:
            shard_id = shard["ShardId"]
            if shard_id not in self._iterators:
                self._iterators[shard_id] = self._service.get_shard_iterator(
                    StreamARN=self.place, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
                )["ShardIterator"]
            while True:
                answer = self._service.get_records(ShardIterator=self._iterators[shard_id])
                self._iterators[shard_id] = answer["NextShardIterator"]
                for record in answer["Records"]:
                    self._note(record["Data"].decode())
                if not answer["Records"]:
                    break

    def _read_table(self) -> None:
        pages = self._service.get_paginator("scan").paginate(TableName="out")
        items = [item for page in pages for item in page["Items"]]
        self.records = Counter(
            (int(item["key"]["N"]), int(item["number"]["N"]), int(item["value"]["N"])) for item in items
        )

    def _read_queue(self) -> None:
        receive = partial(self._service.receive_message, QueueUrl=self.place, MaxNumberOfMessages=10)
        for _ in range(2_000):
            messages = receive().get("Messages")
            if not messages:
                return
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
            self._service.delete_message_batch(QueueUrl=self.place, Entries=entries)
            for message in messages:
                self._note(message["Body"])

    def check(self, records: int) -> str:
        """Raise `AssertionError` unless each number is there, with its number among those of its key."""
        expected = {(n % KEYS, n // KEYS + 1, n) for n in range(records)}
        wrong = sorted(set(self.records) ^ expected)
        assert not wrong, f"{len(wrong)} differ: {wrong[:20]}"
        repeated = sum(self.records.values()) - records
        if self._kind == "dynamodb":
            assert repeated == 0
        return f"{repeated} repeated"


class AwsJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.aws.pipeline"
    takes = ("servers", "folder", "target", "interval")

    def await_workers(self) -> list[int]:
        """In one process (`--target local`) the driver is the only worker."""
        if self._arguments["target"] != "local":
            return super().await_workers()
        deadline = time.monotonic() + PATIENCE_S
        while not (workers := self.workers):
            self.check()
            assert time.monotonic() < deadline, "the job has no workers"
            time.sleep(0.05)
        return workers


class Servers:
    """The servers as the other proofs know theirs: they are away between `kill` and `start`."""

    def __init__(self, description: str, *servers: AwsServer) -> None:
        self.bootstrap_servers = description
        self._servers = servers

    def kill(self) -> None:
        for server in self._servers:
            server.suspend()

    def start(self) -> None:
        for server in self._servers:
            server.resume()


def run(seed: int, kills: int, rate: float, target: str, pause_s: tuple[float, float], kind: str) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is wrong."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-aws-"))
        source = stack.enter_context(kinesis_server())
        others = {"dynamodb": moto_server, "sqs": queue_server}
        sink = stack.enter_context(others[kind]()) if kind in others else source
        arn, output = create_stream(source, "in", 2), Output(sink, kind)
        description = json.dumps([arn, source.properties, kind, output.place, sink.properties])
        servers: Any = Servers(description, *{id(each): each for each in (source, sink)}.values())
        feeder = Feeder(source, arn, rate, random.Random(seed + 1))
        job = AwsJob(servers, Path(folder), target, ("", ""))

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = output.count(), time.monotonic() + PATIENCE_S
                while output.count() <= before:
                    job.check()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.2)

        feeder.start()
        try:
            victims = {name: often for name, often in VICTIMS.items() if target != "local" or name != "worker"}
            kinds = kill_again_and_again(chance, servers, job, kills, pause_s, victims, await_progress)
            records = feeder.stop()
            await_records(job, output.count, records)
            output.count()
        finally:
            job.process.kill()
            job.process.wait()
        repeated = output.check(records)
    took_s = time.monotonic() - begun_s
    return (
        f"{kills} kills ({kinds}), {feeder.reshardings} splits and merges, {records} records, each once in effect; "
        f"{repeated}, {took_s:.0f} s"
    )


@click.command(help="Kill workers and drivers, suspend the servers, and look at what came out in the end.")
@click.option("--sink", "kind", type=click.Choice(["kinesis", "dynamodb", "sqs"]), default="kinesis")
@click.option("--kills", default=20, show_default=True, help="How many processes are killed.")
@click.option("--rate", default=200.0, show_default=True, help="Records a second.")
@click.option("--target", default="local[2]", show_default=True, help="A Spark master, or local.")
@click.option("--pause", nargs=2, type=float, default=(0.5, 5.0), show_default=True, help="Between kills (s).")
@click.option("--seed", default=None, type=int, help="Makes the choices the same again.")
def main(kind: str, kills: int, rate: float, target: str, pause: tuple[float, float], seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    print(run(seed, kills, rate, target, pause, kind))


if __name__ == "__main__":
    main()
