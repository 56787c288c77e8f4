"""The source that reads streams as a consumer group, on a real server of Valkey or Redis."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.connectors.redis.test_redis import add, environment, failure_of, number_of
from tests.servers.redis import RedisServer, redis_server
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import ConfigurationError, OperationError
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.redis import RedisGroupSource, RedisStreamSource
from penstock.testing.connectors import SOURCE_CASES, SourceUnderTest, check_source
from penstock.testing.connectors.source_run import SourceRun

EVER = 600_000


def group_source(server: RedisServer, *keys: str, **more: Any) -> RedisGroupSource:
    return RedisGroupSource(server.url, *(keys or ("s",)), group="g", deserialize=number_of, **more)


def checkpointed(parallelism: int = 1) -> StreamExecutionEnvironment:
    return environment(parallelism).enable_checkpointing(50)


def read(source: RedisGroupSource, count: int, env: StreamExecutionEnvironment | None = None) -> list[Any]:
    """The first records."""
    stream = (env or checkpointed()).from_source(source, WatermarkStrategy.no_watermarks(), "group")
    records: Any = stream.execute_and_collect()
    with records:
        return [next(records) for _ in range(count)]


def begin(source: RedisGroupSource, count: int, parallelism: int = 1) -> SourceRun:
    """Return a run that has so many records."""
    run = SourceRun(source, parallelism, real_time=True)
    advance_to(run, count)
    return run


def advance_to(run: SourceRun, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(run.arrived) < count:
        run.advance(5)
        assert time.monotonic() < deadline, f"there are only {run.all_values}"


def advance_until_it_fails(run: SourceRun) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        run.advance(5)


def await_pending(run: SourceRun, server: RedisServer, count: int, key: str = "s") -> None:
    """Take checkpoints until the group has so many pending entries."""
    deadline = time.monotonic() + 30
    while (pending := server.call(("XPENDING", key, "g"))[0][0]) != count:
        run.complete(run.snapshot())
        advance_for(run, 0.02)
        assert time.monotonic() < deadline, f"{pending} entries are pending, and not {count}"


def consumers(server: RedisServer, key: str = "s") -> set[bytes]:
    (rows,) = server.call(("XINFO", "CONSUMERS", key, "g"))
    return {row[1] for row in rows}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_members_share_the_entries_and_acknowledge_them(server: RedisServer, parallelism: int) -> None:
    add(server, "s", *range(300))
    add(server, "r", *range(300, 400))
    run = begin(group_source(server, "s", "r"), 400, parallelism)
    assert sorted(run.all_values) == list(range(400))
    (pending,) = server.call(("XPENDING", "s", "g"))
    assert pending[0] == 300
    await_pending(run, server, 0)
    await_pending(run, server, 0, "r")
    run.close()
    assert consumers(server) <= {b"penstock-0", b"penstock-1"}


def test_a_job_acknowledges_at_checkpoints_and_goes_on_after_them(server: RedisServer) -> None:
    add(server, "s", *range(50))
    assert read(group_source(server), 50) == list(range(50))
    add(server, "s", *range(50, 60))
    again = read(group_source(server), 10)
    assert again[-1] >= 50 or again == sorted(again)  # what no checkpoint covered comes first


def test_entries_that_no_checkpoint_covers_come_again(server: RedisServer) -> None:
    add(server, "s", *range(20))
    run = begin(group_source(server), 20)
    run.close()
    add(server, "s", 20)
    assert read(group_source(server), 21) == list(range(21))


def test_entries_of_a_checkpoint_are_dropped_when_they_come_again(server: RedisServer) -> None:
    """The checkpoint completes, but its acknowledgement is missing."""
    add(server, "s", *range(20))
    run = begin(group_source(server), 20)
    snapshot = run.snapshot()
    add(server, "s", 20, 21)
    run.restart(snapshot)
    advance_to(run, 22)
    assert run.all_values == list(range(22))
    await_pending(run, server, 0)
    run.close()


def test_pending_entries_of_other_consumers_are_claimed_after_a_while(server: RedisServer) -> None:
    add(server, "s", *range(10))
    server.call(("XGROUP", "CREATE", "s", "g", "0"))
    server.call(("XREADGROUP", "GROUP", "g", "other", "COUNT", 4, "STREAMS", "s", ">"))
    run = begin(group_source(server, claim_idle_ms=EVER), 6)
    run.close()
    assert sorted(run.all_values) == list(range(4, 10))
    run = begin(group_source(server, claim_idle_ms=200), 10)
    assert sorted(run.all_values) == list(range(10))
    advance_for(run, 0.6)  # its own entries are idle for longer by now, and do not come again
    assert len(run.all_values) == 10
    run.close()


def advance_for(run: SourceRun, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run.advance(5)


def test_pending_entries_come_to_fewer_readers(server: RedisServer) -> None:
    add(server, "s", *range(40))
    run = begin(group_source(server), 40, parallelism=2)
    snapshot = run.snapshot()
    add(server, "s", *range(40, 50))
    run.restart(snapshot, parallelism=1)
    advance_to(run, 50)
    assert sorted(run.all_values) == list(range(50))
    await_pending(run, server, 0)
    run.close()


@pytest.mark.parametrize("idle_ms", [EVER, 50], ids=["own", "claimed"])
def test_a_trimmed_pending_entry_fails_the_job_unless_a_checkpoint_covers_it(server: RedisServer, idle_ms: int) -> None:
    """The server returns it without fields, or forgets it when it is claimed."""
    ids = add(server, "s", *range(6))
    first = begin(group_source(server, consumer="a"), 6)
    snapshot = first.snapshot()
    first.close()
    server.call(("XTRIM", "s", "MAXLEN", 2))
    if idle_ms == EVER:
        first.restart(snapshot)
        add(server, "s", 6)
        advance_to(first, 7)
        assert first.all_values == list(range(7))
        first.close()
    for _ in range(2):  # also when the job tries again
        other = SourceRun(
            group_source(server, consumer="a" if idle_ms == EVER else "b", claim_idle_ms=idle_ms), 1, real_time=True
        )
        with pytest.raises(OperationError, match=r"pending entries of group 'g' were trimmed.*XACK s g"):
            advance_until_it_fails(other)
        other.close()
    server.call(("XACK", "s", "g", *ids[:4]))
    last = begin(group_source(server, consumer="b", claim_idle_ms=50), 2 + (idle_ms == EVER))
    assert last.all_values[:2] == [4, 5]
    last.close()


def test_entries_that_were_trimmed_before_they_were_delivered_fail_the_job(server: RedisServer) -> None:
    add(server, "s", *range(10))
    server.call(("XTRIM", "s", "MAXLEN", 8))  # what is gone before the start is not missed
    run = begin(group_source(server), 8)
    await_pending(run, server, 0)
    snapshot = run.snapshot()
    run.close()
    (last,) = server.call(("XINFO", "GROUPS", "s"))
    add(server, "s", *range(10, 20))
    server.call(("XTRIM", "s", "MAXLEN", 4))
    for _ in range(2):
        run.restart(snapshot)
        with pytest.raises(OperationError, match=r"trimmed: 6 entries after .* XGROUP SETID s g \S+ ENTRIESREAD 16"):
            advance_until_it_fails(run)
        run.close()
    server.call(("XGROUP", "SETID", "s", "g", last[0][7], "ENTRIESREAD", 16))
    run.restart(snapshot)
    advance_to(run, 12)
    assert run.all_values == [*range(2, 10), *range(16, 20)]
    run.close()


def test_entries_that_are_deleted_once_they_are_acknowledged_are_not_missed(server: RedisServer) -> None:
    for start in (0, 10, 20):
        ids = add(server, "s", *range(start, start + 10))
        assert read(group_source(server), 10, environment()) == list(range(start, start + 10))
        deadline = time.monotonic() + 30
        while server.call(("XPENDING", "s", "g"))[0][0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.call(("XDEL", "s", *ids))


def test_a_group_that_was_removed_fails_the_job(server: RedisServer) -> None:
    add(server, "s", 1)
    run = begin(group_source(server), 1)
    snapshot = run.snapshot()
    server.call(("XGROUP", "DESTROY", "s", "g"))
    with pytest.raises(OperationError, match=r"NOGROUP|the group was removed from stream 's'"):
        advance_until_it_fails(run)
    run.close()
    run.restart(snapshot)
    with pytest.raises(OperationError, match=r"removed after the checkpoint\. Start the job without the checkpoint"):
        advance_until_it_fails(run)
    run.close()


def test_a_group_begins_where_it_is_told_and_later_where_it_was(server: RedisServer) -> None:
    add(server, "s", 1, 2)
    source = group_source(server, starts_at="latest")
    run = SourceRun(source, 1, real_time=True)
    deadline = time.monotonic() + 30
    while not server.call(("XINFO", "GROUPS", "s"))[0]:
        run.advance(5)
        assert time.monotonic() < deadline
    add(server, "s", 3)
    advance_to(run, 1)
    await_pending(run, server, 0)
    run.close()
    add(server, "s", 4)
    run = begin(source, 1)
    assert run.all_values == [4]
    run.close()


def test_without_checkpoints_entries_are_acknowledged_at_once(server: RedisServer) -> None:
    add(server, "s", *range(20))
    assert read(group_source(server), 20, environment()) == list(range(20))
    assert server.call(("XPENDING", "s", "g"))[0][0] == 0


def test_a_member_waits_for_a_server_that_restarts() -> None:
    """Entries come once, also those whose answer the server's end has cut off."""
    seed = commit_number()
    print("seed", seed)
    choose = random.Random(seed)
    with redis_server() as server:
        add(server, "s", *range(200))
        run = SourceRun(group_source(server), 1, real_time=True)
        total = 200
        for _ in range(3):
            advance_to(run, choose.randint(len(run.arrived), total))
            server.kill()
            back = threading.Timer(choose.uniform(0, 0.3), server.start)
            back.start()
            snapshot = run.snapshot()
            run.complete(snapshot)
            advance_for(run, 0.2)
            back.join()
            add(server, "s", *range(total, total + 50))
            total += 50
        advance_to(run, total)
        assert run.all_values == list(range(total))
        await_pending(run, server, 0)
        run.close()


def test_results_have_the_form_of_version_2_of_the_protocol(server: RedisServer) -> None:
    """With version 3, redis-py 8 returns the results of XREAD and XREADGROUP as dictionaries."""
    for create in (RedisStreamSource, RedisGroupSource):
        more: Any = {"group": "g"} if create is RedisGroupSource else {}
        with pytest.raises(ConfigurationError, match="is read with version 2 of the protocol"):
            create(f"{server.url}?protocol=3", "s", **more)
    server.call(("XADD", "s", "1700-3", "kind", "tea", b"\xff", b"\x00"))
    run = begin(RedisGroupSource(server.url, "s", group="g"), 1)
    assert run.arrived == [(0, ("s", "1700-3", {b"kind": b"tea", b"\xff": b"\x00"}), 1700)]
    run.close()


def test_wrong_arguments_and_keys(server: RedisServer) -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: RedisGroupSource(server.url, group="g"), "name each stream"),
        (lambda: RedisGroupSource(server.url, "s", group=""), "names of a consumer group"),
        (lambda: group_source(server, starts_at="first"), "not from 'first'"),
        (lambda: group_source(server, claim_idle_ms=0), "must be positive"),
    ]
    for create, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            create()
    server.call(("SET", "text", 1))
    assert "wrong kind of value" in failure_of(lambda: read(group_source(server, "text"), 1, environment()))


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_group_keeps_the_rules(server: RedisServer, case: str) -> None:
    def prepare() -> SourceUnderTest:
        server.call(("FLUSHALL",))
        add(server, "s", *range(12))
        return SourceUnderTest(group_source(server), list(range(12)), real_time=True)

    check_source(prepare, case, parallelisms=[1], batch_sizes=[5], places=3)
