"""Sinks and sources of services beside their bare clients: queues, Redis, MongoDB, ClickHouse and HTTP.

`python -m benchmarks.clients --connector rabbitmq amqp://127.0.0.1:5672` writes through the sink and reads through the
source, and does the same with pika alone. They take turns, in one process on one core. It prints the processor time of
this process, and how many times as fast as the bare client Penstock is. `--connector http` needs no server.

The bare clients give what Penstock gives: they wait until the service has what they sent, and acknowledge what they
read, many messages at once where the client can.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import importlib
import json
import os
import socket
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pyarrow as pa

from penstock.common import SimpleStringSchema
from penstock.connectors.mongodb.sink import mongo_settings
from penstock.connectors.mongodb.source import MongoAddress
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.clickhouse import ClickHouseSink, ClickHouseTable
from penstock.datastream.connectors.http import HttpSink, HttpSinkRequestEntry
from penstock.datastream.connectors.mongodb import MongoSink, MongoSource, MongoWrite
from penstock.datastream.connectors.mqtt import MqttSink, MqttSource
from penstock.datastream.connectors.nats import NatsSink, NatsSource
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from penstock.datastream.connectors.redis import RedisCommand, RedisSink, RedisStreamSource
from penstock.runtime.connector import InputStatus, Sink, Source

BATCH_ROWS: Final = 4_096
#: how many messages come between two acknowledgements
CHECKPOINT: Final = 20_000
#: how many messages a bare client sends before it waits
WINDOW: Final = 4_000

Way = Callable[[], None]


class Context:
    """What a writer or a reader needs of its task."""

    subtask_index, parallelism, attempt = 0, 1, 0
    job_id, operator_id, run = "job", "sink", 0

    def __init__(self) -> None:
        self.run = time.time_ns()

    def now_ms(self) -> int:
        return int(time.time() * 1_000)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def write(sink: Sink[Any], records: list[Any]) -> None:
    """Write records as a task does, and wait until the service has them."""
    context: Any = Context()
    writer = sink.create_writer(context)
    for start in range(0, len(records), BATCH_ROWS):
        writer.write_batch(records[start : start + BATCH_ROWS], None)
    committables = writer.prepare_commit()
    committer: Any = sink.create_committer(context) if committables else None
    if committer is not None:
        committer.commit(committables)
        committer.close()
    writer.close()


def read(source: Source[Any, Any], splits: list[Any], count: int) -> None:
    """Read so many records as a task does; a checkpoint completes after every `CHECKPOINT` of them."""
    context: Any = Context()
    reader = source.create_reader(context)
    reader.start()
    reader.add_splits(splits)
    total, due, number = 0, CHECKPOINT, 0
    while total < count:
        batch = reader.poll_next(BATCH_ROWS)
        if isinstance(batch, InputStatus):
            assert batch is not InputStatus.END_OF_INPUT, f"{total} of {count} records"
            time.sleep(0.01)
            continue
        total += len(batch)
        if total >= due or total >= count:
            number, due = number + 1, due + CHECKPOINT
            reader.snapshot_state(number)
            reader.notify_checkpoint_complete(number)
    reader.close()


def texts(count: int) -> list[str]:
    return [f'{{"id": {n}, "customer": "customer {n % 997}", "quantity": {n % 13}}}' for n in range(count)]


def documents(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "customer": f"customer {n % 997}",
            "quantity": n % 13,
            "price": n / 7,
            "note": f"a note about order {n}, of some length",
        }
        for n in range(count)
    ]


class Contest(ABC):
    """A service: what to do before each turn, and two ways to do the same."""

    def __init__(self, url: str, rows: int) -> None:
        self.url, self.rows = url, rows

    @abstractmethod
    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        """Return names, preparations, Penstock's ways and those of the bare client."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop what was started."""


class Rabbit(Contest):
    """RabbitMQ beside pika's asynchronous connection."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.pika = importlib.import_module("pika")
        self.texts = texts(rows)
        self.config = RMQConnectionConfig.Builder().set_uri(url).build()

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", self.empty, self.write, self.write_bare
        yield "source", self.fill, self.read, self.read_bare

    def empty(self) -> None:
        connection = self.pika.BlockingConnection(self.pika.URLParameters(self.url))
        channel = connection.channel()
        channel.queue_delete("orders")
        channel.queue_declare("orders", durable=True)
        connection.close()

    def fill(self) -> None:
        self.empty()
        self.write_bare()

    def write(self) -> None:
        write(RMQSink(self.config, "orders", SimpleStringSchema()), self.texts)

    def run(self, use: Callable[[Any, Any], None]) -> None:
        """Open a channel, and call `use` with the connection and the channel."""
        connection = self.pika.SelectConnection(
            self.pika.URLParameters(self.url),
            on_open_callback=lambda opened: opened.channel(on_open_callback=lambda channel: use(opened, channel)),
            on_close_callback=lambda closed, _: closed.ioloop.stop(),
        )
        connection.ioloop.start()
        connection.ioloop.close()

    def write_bare(self) -> None:
        persistent = self.pika.BasicProperties(delivery_mode=2)
        rest = iter(self.texts)
        published = confirmed = 0

        def use(connection: Any, channel: Any) -> None:
            def publish() -> None:
                nonlocal published
                for text in islice(rest, WINDOW - (published - confirmed)):
                    published += 1
                    channel.basic_publish("", "orders", text.encode(), persistent, True)

            def on_confirm(frame: Any) -> None:
                nonlocal confirmed
                confirmed = max(confirmed, frame.method.delivery_tag)
                if published - confirmed <= WINDOW // 2:
                    publish()
                if confirmed == self.rows:
                    connection.close()

            channel.confirm_delivery(on_confirm, callback=lambda _: publish())

        self.run(use)

    def read(self) -> None:
        source = RMQSource(self.config, "orders", deserialization_schema=SimpleStringSchema())
        read(source, new_splits(source), self.rows)

    def read_bare(self) -> None:
        records: list[str] = []

        def use(connection: Any, channel: Any) -> None:
            def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
                records.append(body.decode())
                if len(records) % CHECKPOINT == 0 or len(records) == self.rows:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                    if len(records) == self.rows:
                        connection.close()

            channel.basic_qos(prefetch_count=65_535)
            channel.basic_consume("orders", on_message)

        self.run(use)


def new_splits(source: Source[Any, Any]) -> list[Any]:
    """Return the first split of a source of a queue."""
    splits: list[Any] = []

    class Enumeration(Context):
        def assign_split(self, split: Any, subtask_index: int) -> None:
            splits.append(split)

        def call_async(self, function: Callable[[], Any], handler: Callable[[Any, Any], None]) -> None:
            handler(function(), None)

    context: Any = Enumeration()
    enumerator = source.create_enumerator(context, None)
    enumerator.start()
    enumerator.handle_split_request(0)
    return splits


class Redis(Contest):
    """Redis beside redis-py: SET by pipelines, and the entries of a stream."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.client = importlib.import_module("redis").Redis.from_url(url)
        self.texts = texts(rows)
        self.client.delete("orders")
        pipeline = self.client.pipeline(transaction=False)
        for text in self.texts:
            pipeline.xadd("orders", {"order": text, "kind": "tea"})
        pipeline.execute()

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", lambda: None, self.write, self.write_bare
        yield "stream source", lambda: None, self.read, self.read_bare

    def write(self) -> None:
        numbered = list(enumerate(self.texts))
        write(RedisSink(self.url, lambda order: RedisCommand.set(f"order:{order[0]}", order[1])), numbered)

    def write_bare(self) -> None:
        numbered = iter(list(enumerate(self.texts)))
        while orders := list(islice(numbered, 500)):
            pipeline = self.client.pipeline(transaction=False)
            for number, text in orders:
                pipeline.set(f"order:{number}", text)
            pipeline.execute()

    def read(self) -> None:
        source = RedisStreamSource(self.url, "orders", deserialize=lambda entry: entry.fields[b"order"].decode())
        read(source, new_splits(source), self.rows)

    def read_bare(self) -> None:
        position: Any = "0-0"
        records: list[str] = []
        while streams := self.client.xread({"orders": position}, BATCH_ROWS):
            entries = streams[0][1]
            records += [fields[b"order"].decode() for _, fields in entries]
            position = entries[-1][0]
        assert len(records) == self.rows


class Mongo(Contest):
    """MongoDB beside pymongo: documents by `_id`, and a collection."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.pymongo = importlib.import_module("pymongo")
        self.client = self.pymongo.MongoClient(url)
        self.documents = documents(rows)

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", self.empty, self.write, self.write_bare
        yield "source", lambda: None, self.read, self.read_bare

    def empty(self) -> None:
        self.client.bench.orders.delete_many({})

    def write(self) -> None:
        address = MongoAddress(self.url, "bench", "orders")
        limits = mongo_settings(max_in_flight=1)  # like the bare client
        write(MongoSink(address, lambda order: MongoWrite.replace(order["id"], order), limits), self.documents)

    def write_bare(self) -> None:
        orders = iter(self.documents)
        while some := list(islice(orders, 1_000)):
            writes = [self.pymongo.ReplaceOne({"_id": order["id"]}, order, upsert=True) for order in some]
            self.client.bench.orders.bulk_write(writes, ordered=False)

    def read(self) -> None:
        builder = MongoSource.builder().set_uri(self.url).set_database("bench").set_collection("orders")
        source = builder.build()
        read(source, new_splits(source), self.rows)

    def read_bare(self) -> None:
        cursor = self.client.bench.orders.find({}, sort=[("_id", 1)], batch_size=2_048)
        assert len(list(cursor)) == self.rows


class Nats(Contest):
    """JetStream beside nats-py."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.nats = importlib.import_module("nats")
        self.texts = texts(rows)

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", self.empty, self.write, self.write_bare
        yield "source", lambda: None, self.read, self.read_bare
        yield "source, durable", self.forget, lambda: self.read("orders"), lambda: self.read_bare("orders")

    def run(self, use: Callable[[Any], Any]) -> None:
        async def connected() -> None:
            connection = await self.nats.connect(self.url)
            await use(connection.jetstream(publish_async_max_pending=WINDOW))
            await connection.close()

        asyncio.run(connected())

    def empty(self) -> None:
        async def make(stream: Any) -> None:
            with contextlib.suppress(self.nats.js.errors.NotFoundError):
                await stream.delete_stream("ORDERS")
            await stream.add_stream(name="ORDERS", subjects=["orders"])

        self.run(make)

    def forget(self) -> None:
        async def delete(stream: Any) -> None:
            with contextlib.suppress(self.nats.js.errors.NotFoundError):
                await stream.delete_consumer("ORDERS", "orders")

        self.run(delete)

    def write(self) -> None:
        write(NatsSink(self.url, "orders", SimpleStringSchema()), self.texts)

    def write_bare(self) -> None:
        async def publish(stream: Any) -> None:
            for text in self.texts:
                await stream.publish_async("orders", text.encode(), wait_stall=10)
            await stream.publish_async_completed()

        self.run(publish)

    def read(self, durable: str | None = None) -> None:
        source = NatsSource(self.url, "ORDERS", durable=durable, deserialization_schema=SimpleStringSchema())
        read(source, new_splits(source), self.rows)

    def read_bare(self, durable: str | None = None) -> None:
        async def pull(stream: Any) -> None:
            kinds = self.nats.js.api
            config = kinds.ConsumerConfig(
                ack_policy=kinds.AckPolicy.EXPLICIT if durable else kinds.AckPolicy.NONE, max_ack_pending=65_535
            )
            pulled = await stream.pull_subscribe("orders", durable, "ORDERS", config)
            records: list[str] = []
            while len(records) < self.rows:
                messages = await pulled.fetch(min(BATCH_ROWS, self.rows - len(records)))
                records += [message.data.decode() for message in messages]
                if durable:
                    for message in messages:
                        await message.ack()

        self.run(pull)


class Mqtt(Contest):
    """MQTT beside paho-mqtt, with QoS 1."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.mqtt = importlib.import_module("paho.mqtt.client")
        self.texts = texts(rows)

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", lambda: None, self.write, self.write_bare
        yield "source", self.fill, self.read, self.read_bare

    def connect(self, client_id: str, session_s: int, **more: Any) -> Any:
        client = self.mqtt.Client(self.mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=self.mqtt.MQTTv5, **more)
        properties = importlib.import_module("paho.mqtt.properties")
        connecting = properties.Properties(importlib.import_module("paho.mqtt.packettypes").PacketTypes.CONNECT)
        connecting.SessionExpiryInterval, connecting.ReceiveMaximum = session_s, 65_535
        client.max_inflight_messages_set(65_535)
        parts = urlsplit(self.url)
        client.connect(str(parts.hostname), parts.port or 1883, clean_start=not session_s, properties=connecting)
        return client

    def subscribe(self, client_id: str) -> None:
        client = self.connect(client_id, 3_600)
        done: list[int] = []
        client.on_subscribe = lambda *_: done.append(1)
        client.on_connect = lambda *_: client.subscribe("orders", 1)
        while not done:
            client.loop(0.1)
        client.disconnect()

    def fill(self) -> None:
        """Let the server have messages for the sessions of both readers."""
        for client_id in ("bench-0", "bare"):
            self.subscribe(client_id)
        self.write_bare()

    def write(self) -> None:
        write(MqttSink(self.url, "orders", SimpleStringSchema()), self.texts)

    def write_bare(self) -> None:
        client = self.connect("", 0)
        room, confirmed = threading.Semaphore(WINDOW), threading.Semaphore(0)

        def on_publish(*_: Any) -> None:
            room.release()
            confirmed.release()

        client.on_publish = on_publish
        client.loop_start()
        for text in self.texts:
            room.acquire()
            client.publish("orders", text.encode(), 1)
        for _ in self.texts:
            confirmed.acquire()
        client.disconnect()
        client.loop_stop()

    def read(self) -> None:
        source = MqttSource(self.url, "orders", client_id="bench", deserialization_schema=SimpleStringSchema())
        read(source, new_splits(source), self.rows)

    def read_bare(self) -> None:
        client = self.connect("bare", 3_600, manual_ack=True)
        records: list[str] = []
        mids: list[int] = []

        def on_message(client: Any, data: Any, message: Any) -> None:
            records.append(message.payload.decode())
            mids.append(message.mid)

        client.on_message = on_message
        while len(records) < self.rows or mids:
            client.loop(0.1)
            if len(mids) >= CHECKPOINT or len(records) == self.rows:
                for mid in mids:
                    client.ack(mid, 1)
                mids.clear()
        client.disconnect()


class ClickHouse(Contest):
    """ClickHouse beside an insert of Arrow's rows over `http.client`."""

    SIZE = 50_000

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.documents = documents(rows)
        self.table = ClickHouseTable(url, "default", "orders")

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        for guarantee in (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE):
            yield f"sink, {guarantee.value}", self.empty, lambda kind=guarantee: self.write(kind), self.write_bare  # type: ignore[misc]

    def call(self, query: str, body: bytes = b"") -> None:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port or 8123)
        connection.request("POST", f"/?query={quote(query)}", body)
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        connection.close()

    def empty(self) -> None:
        self.call("DROP TABLE IF EXISTS orders")
        self.call(
            "CREATE TABLE orders (id Int64, customer String, quantity Int32, price Float64, note String) ENGINE = "
            "MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
        )

    def write(self, guarantee: DeliveryGuarantee) -> None:
        write(ClickHouseSink(self.table, guarantee), self.documents)

    def write_bare(self) -> None:
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("customer", pa.string()),
                ("quantity", pa.int32()),
                ("price", pa.float64()),
                ("note", pa.string()),
            ]
        )
        for start in range(0, self.rows, self.SIZE):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, schema) as stream:
                stream.write_table(pa.Table.from_pylist(self.documents[start : start + self.SIZE], schema))
            self.call("INSERT INTO orders FORMAT ArrowStream", out.getvalue().to_pybytes())


class Http(Contest):
    """A sink of JSON arrays beside `http.client`; another process answers."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(url, rows)
        self.documents = documents(rows)
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/orders"
        self.server = os.fork()
        if not self.server:
            serve(listener)
        listener.close()

    def contests(self) -> Iterable[tuple[str, Way, Way, Way]]:
        yield "sink", lambda: None, self.write, self.write_bare
        yield "sink, one record a request", lambda: None, self.write_single, self.write_single_bare

    def write(self, mode: str = "batch", rows: int | None = None) -> None:
        builder = HttpSink.builder().set_endpoint_url(self.url).set_property("http.sink.writer.request.mode", mode)
        builder.set_element_converter(lambda order: HttpSinkRequestEntry("POST", json.dumps(order).encode()))
        write(builder.build(), self.documents[:rows])

    def write_single(self) -> None:
        self.write("single", self.rows // 10)

    def write_bare(self) -> None:
        orders = iter(self.documents)
        self.post(
            b"[" + b",".join([json.dumps(order).encode() for order in some]) + b"]"
            for some in iter(lambda: list(islice(orders, 500)), [])
        )

    def write_single_bare(self) -> None:
        self.post(json.dumps(order).encode() for order in self.documents[: self.rows // 10])

    def post(self, bodies: Iterator[bytes]) -> None:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        for body in bodies:
            connection.request("POST", parts.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.status == 200
        connection.close()

    def close(self) -> None:
        os.kill(self.server, 9)
        os.waitpid(self.server, 0)


def serve(listener: socket.socket) -> None:
    """Answer each request with 200."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:] if line)
                await reader.readexactly(int(fields[b"content-length"]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, sock=listener, limit=1 << 24)
        await server.serve_forever()

    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    asyncio.run(run())


SERVICES: Final[dict[str, type[Contest]]] = {
    "rabbitmq": Rabbit,
    "redis": Redis,
    "mongodb": Mongo,
    "nats": Nats,
    "mqtt": Mqtt,
    "clickhouse": ClickHouse,
    "http": Http,
}


def measure(prepare: Way, way: Way) -> float:
    """Return the processor time of this process, in seconds."""
    prepare()
    begun_s = time.process_time()
    way()
    return time.process_time() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connector", required=True, choices=SERVICES)
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="the contests whose names begin so")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    service = SERVICES[arguments.connector](arguments.url, arguments.rows)
    try:
        for name, prepare, ours, bare in service.contests():
            if not name.startswith(arguments.only):
                continue
            pairs = [[measure(prepare, ours), measure(prepare, bare)] for _ in range(arguments.runs)]
            ratios = [theirs / own for own, theirs in pairs]
            own_s, bare_s = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(
                f"{arguments.connector} {name}: {own_s:.2f} s, bare {bare_s:.2f} s, "
                f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
    finally:
        service.close()


if __name__ == "__main__":
    main()
