"""The sink of commands and the source of streams, on a real server of Valkey or Redis."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.servers.redis import RedisServer, redis_server
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, WrongValueError
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.redis.client import RedisAddress, RedisConnections
from penstock.connectors.redis.stream_source import PATIENCE_MS, RETRY_MS
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import AsyncSinkSettings
from penstock.datastream.connectors.redis import RedisCommand, RedisSink, RedisStreamSource
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

QUICK = AsyncSinkSettings(max_batch_size=7, max_in_flight_requests=3, max_time_in_buffer_ms=5, retry_delay_ms=20)


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    settings = Configuration()
    settings.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)


def write(server: RedisServer, records: list[Any], to_command: Callable[[Any], RedisCommand], **more: Any) -> None:
    env = environment()
    env.from_collection(records).sink_to(RedisSink(server.url, to_command, **more))
    env.execute()


def read(source: RedisStreamSource, parallelism: int = 1) -> list[Any]:
    return environment(parallelism).from_source(source, WatermarkStrategy.no_watermarks(), "streams").collect()


def failure_of(action: Callable[[], Any]) -> str:
    with pytest.raises(JobExecutionError) as raised:
        action()
    return str(raised.value)


NUMBERS = list(range(20))
LATER_MS = 3_600_000

COMMANDS: dict[str, tuple[Callable[[int], RedisCommand], tuple[Any, ...], Any]] = {
    "set": (lambda n: RedisCommand.set("s", n, LATER_MS), ("GET", "s"), b"19"),
    "bytes": (lambda n: RedisCommand.set(b"\xff", b"\x00\xfe"), ("GET", b"\xff"), b"\x00\xfe"),
    "hset": (lambda n: RedisCommand.hset("h", {"n": n, n % 2: 1.5}), ("HGET", "h", "n"), b"19"),
    "hdel": (lambda n: RedisCommand.hset("h", {"n": n}).then(RedisCommand.hdel("h", "n")), ("HLEN", "h"), 0),
    "rpush": (lambda n: RedisCommand.rpush("l", n), ("LRANGE", "l", 0, -1), [b"%d" % n for n in NUMBERS]),
    "lpush": (lambda n: RedisCommand.lpush("l", n), ("LRANGE", "l", 0, 1), [b"19", b"18"]),
    "sadd": (lambda n: RedisCommand.sadd("s", n % 3, "ü"), ("SCARD", "s"), 4),
    "srem": (lambda n: RedisCommand.sadd("s", n).then(RedisCommand.srem("s", n)), ("SCARD", "s"), 0),
    "zadd": (lambda n: RedisCommand.zadd("z", {n % 3: n}), ("ZRANGE", "z", 0, -1), [b"2", b"0", b"1"]),
    "zrem": (lambda n: RedisCommand.zadd("z", {n: n}).then(RedisCommand.zrem("z", n)), ("ZCARD", "z"), 0),
    "xadd": (lambda n: RedisCommand.xadd("x", {"n": n}, max_length=1_000), ("XLEN", "x"), 20),
    "delete": (lambda n: RedisCommand.delete("d") if n == 19 else RedisCommand.set("d", n), ("EXISTS", "d"), 0),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command(server: RedisServer, name: str) -> None:
    to_command, question, answer = COMMANDS[name]
    write(server, NUMBERS, to_command, settings=QUICK)
    assert server.call(question) == [answer]


def test_keys_expire(server: RedisServer) -> None:
    commands = [
        RedisCommand.set("set", 1, LATER_MS),
        RedisCommand.hset("hset", {"a": 1}, LATER_MS),
        RedisCommand.rpush("rpush", 1, ttl_ms=LATER_MS),
        RedisCommand.lpush("lpush", 1, ttl_ms=LATER_MS),
        RedisCommand.sadd("sadd", 1, ttl_ms=LATER_MS),
        RedisCommand.zadd("zadd", {"a": 1}, LATER_MS),
        RedisCommand.xadd("xadd", {"a": 1}, ttl_ms=LATER_MS),
        RedisCommand.sadd("expire", 1),
        RedisCommand.expire("expire", LATER_MS),
    ]
    write(server, commands, lambda command: command)
    keys = {str(command.key) for command in commands}
    assert all(0 < left <= LATER_MS for left in server.call(*[("PTTL", key) for key in keys]))


def test_messages_are_published(server: RedisServer) -> None:
    connections = RedisConnections(RedisAddress(server.url), "tests")
    connection = connections._pool.get_connection()
    connection.send_command("SUBSCRIBE", "news")
    assert connection.read_response() == [b"subscribe", b"news", 1]
    write(server, NUMBERS, lambda n: RedisCommand.publish("news", f"cup {n}"))
    assert [connection.read_response()[2].decode() for _ in NUMBERS] == [f"cup {n}" for n in NUMBERS]
    connection.disconnect()


def test_lists_keep_their_order_in_large_pipelines(server: RedisServer) -> None:
    """Two lists, of which each has many entries in every pipeline, with three pipelines at a time."""
    write(server, list(range(3_000)), lambda n: RedisCommand.rpush(n % 2, n), settings=QUICK)
    for key in (0, 1):
        assert server.call(("LRANGE", key, 0, -1)) == [[b"%d" % n for n in range(key, 3_000, 2)]]


def test_a_wrong_type_fails_the_job(server: RedisServer) -> None:
    server.call(("SET", "text", "tea"))
    message = failure_of(lambda: write(server, NUMBERS, lambda n: RedisCommand.rpush("text", n)))
    assert "RedisSink: the service rejects RedisCommand(key='text'" in message
    assert "Operation against a key holding the wrong kind of value" in message
    transaction = failure_of(lambda: write(server, NUMBERS, lambda n: RedisCommand.rpush("text", n, ttl_ms=9)))
    assert "wrong kind of value" in transaction
    assert "no NoneType: None" in failure_of(lambda: write(server, NUMBERS, lambda n: RedisCommand.set("a", None)))  # type: ignore[arg-type]
    assert "must return a RedisCommand, not 0" in failure_of(lambda: write(server, NUMBERS, lambda n: n))


def test_what_makes_no_command_is_refused() -> None:
    with pytest.raises(WrongValueError, match="RPUSH of key 'l' has no values"):
        RedisCommand.rpush("l")
    with pytest.raises(WrongValueError, match="XADD of key 'x' has no values"):
        RedisCommand.xadd("x", {})
    with pytest.raises(WrongValueError, match="ttl_ms is 0; it must be positive"):
        RedisCommand.set("a", 1, 0)


def test_addresses_show_no_password() -> None:
    address = RedisAddress("rediss://me:letmein12@db:6380/3?ssl_ca_certs=ca.pem")
    assert repr(address) == "RedisAddress('rediss://db:6380/3')"
    with pytest.raises(ConfigurationError, match="begins with redis://") as raised:
        RedisAddress("http://me:letmein12@db")
    assert "letmein12" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="leave out protocol="):
        RedisAddress("redis://db?protocol=3")


def test_passwords() -> None:
    with redis_server() as server:
        server.call(("CONFIG", "SET", "requirepass", "letmein12"))
        message = failure_of(lambda: write(server, NUMBERS, lambda n: RedisCommand.set("a", n)))
        assert "Authentication required" in message
        wrong: RedisSink[int] = RedisSink(server.url.replace("//", "//:letmeout9@"), lambda n: RedisCommand.set("a", n))
        env = environment()
        env.from_collection(NUMBERS).sink_to(wrong)
        message = failure_of(env.execute)
        assert "WRONGPASS" in message or "invalid username-password" in message, message
        assert "letmeout9" not in message
        server.url = server.url.replace("//", "//:letmein12@")
        write(server, NUMBERS, lambda n: RedisCommand.set("a", n))
        assert server.call(("GET", "a")) == [b"19"]


#: what the job of the next test does before some of its records; jobs of the local target share this process
BEFORE: dict[int, Callable[[], Any]] = {}


class Steps:
    """Turns numbers into commands, and does what `BEFORE` has for them."""

    def __call__(self, number: int) -> RedisCommand:
        if number in BEFORE:
            BEFORE[number]()
        return RedisCommand.hset(f"h{number % 5}", {"last": number, number: 1}, LATER_MS)


def test_a_server_that_restarts_loses_nothing() -> None:
    """The server is killed and starts again while a job writes; values are set in order."""
    seed = commit_number()
    print(f"seed {seed}")
    choose = random.Random(seed)
    with redis_server() as server:
        striking: list[threading.Thread] = []

        def strike() -> None:
            server.kill()
            striking.append(threading.Timer(choose.uniform(0, 0.3), server.start))
            striking[-1].start()

        def finish() -> None:
            striking[-1].join()

        BEFORE.update(dict.fromkeys(choose.sample(range(500, 1_500), 1), strike))
        BEFORE.update({1_500: finish, choose.randint(1_501, 2_500): strike, 2_501: finish})
        write(server, list(range(3_000)), Steps(), settings=QUICK)
        for key in range(5):
            last, size = server.call(("HGET", f"h{key}", "last"), ("HLEN", f"h{key}"))
            assert (last, size) == (b"%d" % (2_995 + key), 601)


#: Nothing is sent before a checkpoint: the kit leaves writers as if they were killed, but their threads go on.
PATIENT = AsyncSinkSettings(max_time_in_buffer_ms=60_000)


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(server: RedisServer, case: str) -> None:
    records = [(n % 4, n) for n in range(12)]

    def prepare() -> SinkUnderTest:
        server.call(("FLUSHALL",))
        sink: RedisSink[Any] = RedisSink(
            server.url, lambda record: RedisCommand.hset("h", {record[0]: record[1]}), PATIENT
        )
        return SinkUnderTest(
            sink, records, lambda: read_pairs(server), last_of_each(lambda record: record[0]), lambda record: record[0]
        )

    check_sink(prepare, case, places=4)


def read_pairs(server: RedisServer) -> list[tuple[int, int]]:
    ((*parts,),) = server.call(("HGETALL", "h"))
    return [(int(field), int(value)) for field, value in zip(parts[::2], parts[1::2], strict=True)]


# --- streams --------------------------------------------------------------------------------------------------------


def number_of(entry: Any) -> int:
    return int(entry.fields[b"n"])


def add(server: RedisServer, key: str, *numbers: int) -> list[Any]:
    return server.call(*[("XADD", key, "*", "n", n) for n in numbers])


def extend_stream(server: RedisServer, key: str, *numbers: int) -> None:
    add(server, key, *numbers)


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_source_keeps_the_rules(server: RedisServer, case: str) -> None:
    def prepare() -> SourceUnderTest:
        server.call(("FLUSHALL",))
        add(server, "a", *range(5))
        add(server, "b", *range(10, 13))
        source = RedisStreamSource(server.url, "a", "b", "c", bounded=True, deserialize=number_of)
        return SourceUnderTest(source, [0, 1, 2, 3, 4, 10, 11, 12], order_of=lambda n: n // 10)

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[2], places=5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["restart", "rescale", "reader-alone", "late-barrier"])
def test_a_source_that_follows_streams(server: RedisServer, case: str) -> None:
    def prepare() -> SourceUnderTest:
        server.call(("FLUSHALL",))
        add(server, "a", 0, 1)
        source = RedisStreamSource(server.url, "a", "b", deserialize=number_of)
        extend = [partial(extend_stream, server, "b", 10, 11), partial(extend_stream, server, "a", 2)]
        return SourceUnderTest(source, [0, 1, 2, 10, 11], extend, lambda n: n // 10)

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[2], places=4)


def test_entries_have_ids_fields_and_timestamps(server: RedisServer) -> None:
    server.call(("XADD", "s", "1700-3", "kind", "tea", b"\xff", b"\x00"))
    (entry,) = read(RedisStreamSource(server.url, "s", bounded=True))
    assert entry == ("s", "1700-3", {b"kind": b"tea", b"\xff": b"\x00"})
    assert read(RedisStreamSource(server.url, "s", starts_at="latest", bounded=True)) == []
    assert read(RedisStreamSource(server.url, "missing", bounded=True)) == []
    server.call(("SET", "text", 1))
    assert "wrong kind of value" in failure_of(lambda: read(RedisStreamSource(server.url, "text", bounded=True)))


def poll(reader: Any, records: int) -> list[Any]:
    batch = reader.poll_next(records)
    return list(batch.values)


class ReaderContext:
    """What a reader asks of its task."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.failures = 0

    def now_ms(self) -> int:
        return self.time_ms

    def count(self, name: str, increment: int = 1) -> None:
        self.failures += increment

    def request_split(self) -> None:
        pass

    def send_source_event(self, event: Any) -> None:
        pass

    def open_split(self, split_id: str) -> None:
        pass

    def close_split(self, split_id: str) -> None:
        pass


def open_reader(source: RedisStreamSource, splits: list[Any], context: ReaderContext | None = None) -> Any:
    reader = source.create_reader(context or ReaderContext())  # type: ignore[arg-type]
    reader.add_splits(splits)
    return reader


def test_trimmed_entries_are_an_error(server: RedisServer) -> None:
    """Entries may go once they are read, by trimming or one by one; if unread ones are trimmed, the source fails."""
    source = RedisStreamSource(server.url, "s", deserialize=number_of)
    add(server, "s", *range(10))
    server.call(("XTRIM", "s", "MAXLEN", 8))  # what is gone before the start is not missed
    reader = open_reader(source, source.find_splits())
    assert poll(reader, 3) == [2, 3, 4]
    server.call(("XTRIM", "s", "MAXLEN", 5))  # just what was read
    assert poll(reader, 1) == [5]
    splits = reader.snapshot_state(1)
    reader.close()
    server.call(("XTRIM", "s", "MAXLEN", 3))  # 5 was read, 6 was not
    reader = open_reader(source, splits)
    with pytest.raises(OperationError, match=r"stream 's' was trimmed: 1 entries after .* were removed before they"):
        reader.poll_next(10)
    reader.close()


def test_a_stream_that_was_removed_is_an_error(server: RedisServer) -> None:
    source = RedisStreamSource(server.url, "s")
    add(server, "s", 1, 2)
    reader = open_reader(source, source.find_splits())
    poll(reader, 5)
    server.call(("DEL", "s"))
    with pytest.raises(OperationError, match="was removed, or made anew"):
        reader.poll_next(5)
    add(server, "s", 3)
    with pytest.raises(OperationError, match="was removed, or made anew"):
        reader.poll_next(5)
    reader.close()


def test_a_reader_waits_for_a_server_that_is_away() -> None:
    with redis_server() as server:
        source, context = RedisStreamSource(server.url, "s", deserialize=number_of), ReaderContext()
        add(server, "s", 1, 2)
        reader = open_reader(source, source.find_splits(), context)
        assert poll(reader, 1) == [1]
        server.kill()
        for _ in range(3):
            assert reader.poll_next(1).name == "NOTHING_AVAILABLE"
        assert context.failures == 1  # it tries again after a while
        context.time_ms += RETRY_MS
        assert reader.poll_next(1).name == "NOTHING_AVAILABLE"
        assert context.failures == 2
        server.start()
        context.time_ms += RETRY_MS
        assert poll(reader, 1) == [2]
        server.kill()
        assert reader.poll_next(1).name == "NOTHING_AVAILABLE"
        context.time_ms += PATIENCE_MS + 1
        with pytest.raises(OperationError, match="does not answer"):
            reader.poll_next(1)
        reader.close()


def test_entries_that_were_removed_one_by_one(server: RedisServer) -> None:
    source = RedisStreamSource(server.url, "s", deserialize=number_of)
    ids = add(server, "s", *range(6))
    server.call(("XDEL", "s", ids[2]))
    reader = open_reader(source, source.find_splits())
    assert poll(reader, 10) == [0, 1, 3, 4, 5]
    server.call(("XTRIM", "s", "MAXLEN", 0))
    add(server, "s", 6)
    assert poll(reader, 10) == [6]
    reader.close()


def test_bounded_sources_end_where_the_last_entries_are_gone(server: RedisServer) -> None:
    source = RedisStreamSource(server.url, "s", deserialize=number_of, bounded=True)
    ids = add(server, "s", *range(3))
    splits = source.find_splits()
    reader = open_reader(source, splits)
    reader.no_more_splits()
    assert poll(reader, 2) == [0, 1]
    server.call(("XDEL", "s", ids[2]))
    assert reader.poll_next(10).name == "END_OF_INPUT"
    reader.close()


def test_wrong_arguments_of_a_source(server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match="name each stream"):
        RedisStreamSource(server.url)
    with pytest.raises(ConfigurationError, match="not from 'first'"):
        RedisStreamSource(server.url, "s", starts_at="first")
