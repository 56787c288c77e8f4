"""The source and the sink of MongoDB, on a real server of its protocol, and without one where no server has a part."""

from __future__ import annotations

import datetime
import pickle
import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from tests.servers.mongodb import MongoServer, mongo_server
from tests.simulation.fresh_seeds import commit_number

from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, WrongTypeError, WrongValueError
from penstock.common import Configuration, Row, WatermarkStrategy
from penstock.connectors.mongodb import source as mongodb
from penstock.connectors.mongodb.sink import find_ordering_key, mongo_settings, read_errors
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.connectors.mongodb import MongoSink, MongoSource, MongoWrite, PartitionStrategy
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

QUICK = mongo_settings(batch_size=7, interval_ms=5, max_retries=8, retry_ms=20)


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    settings = Configuration()
    settings.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)


def address(server: MongoServer, collection: str = "cups") -> mongodb.MongoAddress:
    return mongodb.MongoAddress(server.uri, "shop", collection)


def write(server: MongoServer, records: list[Any], to_write: Callable[[Any], MongoWrite], **more: Any) -> None:
    env = environment()
    env.from_collection(records).sink_to(MongoSink(address(server), to_write, **{"settings": QUICK, **more}))
    env.execute()


def builder(server: MongoServer, collection: str = "cups") -> Any:
    return MongoSource.builder().set_uri(server.uri).set_database("shop").set_collection(collection)


def read(source: MongoSource, parallelism: int = 1) -> list[Any]:
    return environment(parallelism).from_source(source, WatermarkStrategy.no_watermarks(), "cups").collect()


def failure_of(action: Callable[[], Any]) -> str:
    with pytest.raises(JobExecutionError) as raised:
        action()
    return str(raised.value)


# --- the sink -------------------------------------------------------------------------------------------------------

NUMBERS = list(range(20))
WRITES: dict[str, tuple[Callable[[int], MongoWrite], list[dict[str, Any]]]] = {
    "replace": (lambda n: MongoWrite.replace(n % 2, {"n": n}), [{"_id": 0, "n": 18}, {"_id": 1, "n": 19}]),
    "set": (lambda n: MongoWrite.set(0, {f"f{n % 2}": n, "_id": 5}), [{"_id": 0, "f0": 18, "f1": 19}]),
    "set nothing": (lambda n: MongoWrite.set(n % 2, {}), [{"_id": 0}, {"_id": 1}]),
    "update": (lambda n: MongoWrite.update(n % 2, {"$inc": {"n": n}}), [{"_id": 0, "n": 90}, {"_id": 1, "n": 100}]),
    "delete": (
        lambda n: MongoWrite.delete(n % 2) if n > 17 else MongoWrite.set(n % 3, {"n": n}),
        [{"_id": 2, "n": 17}],
    ),
    "insert": (lambda n: MongoWrite.insert({"_id": n, "n": n}), [{"_id": n, "n": n} for n in NUMBERS]),
    "rows": (lambda n: MongoWrite.replace("x", Row(a=n, b=None)), [{"_id": "x", "a": 19, "b": None}]),
    "documents": (
        lambda n: MongoWrite.replace({"a": n % 1, "b": "x"}, {"n": n}),
        [{"_id": {"a": 0, "b": "x"}, "n": 19}],
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write(server: MongoServer, database: Any, name: str) -> None:
    to_write, documents = WRITES[name]
    write(server, NUMBERS, to_write)
    assert sorted(database["cups"].find({}), key=repr) == sorted(documents, key=repr)


def test_documents_without_an_id_are_inserted_once(server: MongoServer, database: Any) -> None:
    """A request that is sent again inserts nothing: its ids were made before the first time."""
    write(server, NUMBERS, lambda n: MongoWrite.insert({"n": n}))
    assert sorted(cup["n"] for cup in database["cups"].find({})) == NUMBERS
    client = MongoSink(address(server), MongoWrite.insert, QUICK).create_client(None)  # type: ignore[arg-type]
    client.open()
    entries = [MongoWrite.insert({"n": n}) for n in (100, 101)]
    assert client.submit_request_entries(entries[:1]) is None
    result = client.submit_request_entries(entries)
    assert (list(result.again), dict(result.rejected)) == ([], {})
    client.close()
    assert database["cups"].count_documents({"n": {"$gte": 100}}) == 2


def test_a_refused_document_fails_the_job(server: MongoServer, database: Any) -> None:
    database["cups"].insert_one({"_id": 3})
    message = failure_of(lambda: write(server, NUMBERS, lambda n: MongoWrite.insert({"_id": n})))
    assert "MongoSink: the service rejects MongoWrite.insert(_id=3)" in message
    assert "code 11000" in message
    assert "must return a MongoWrite, not 0" in failure_of(lambda: write(server, NUMBERS, lambda n: n))
    assert "has no form in BSON" in failure_of(
        lambda: write(server, NUMBERS, lambda n: MongoWrite.replace(n, {"d": datetime.date(2020, 1, 1)}))
    )


def test_what_makes_no_write_is_refused() -> None:
    with pytest.raises(WrongValueError, match="an update consists of operators"):
        MongoWrite.update(1, {"n": 2})
    with pytest.raises(WrongValueError, match="more than 64 bits"):
        MongoWrite.replace(1, {"n": 1 << 64})
    with pytest.raises(WrongTypeError, match="a dict or a Row with names, not a list"):
        MongoWrite.insert([1])  # type: ignore[arg-type]


def test_builders(server: MongoServer, database: Any) -> None:
    sink = (
        MongoSink.builder()
        .set_uri(server.uri)
        .set_database("shop")
        .set_collection("cups")
        .set_serialization_schema(lambda n: MongoWrite.replace(n, {"n": n}))
        .set_batch_size(-1)
        .set_batch_interval_ms(-1)
        .set_max_retries(5)
        .set_retry_interval_ms(10)
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )
    env = environment(2)
    env.from_collection(NUMBERS).sink_to(sink)
    env.execute()
    assert database["cups"].count_documents({}) == 20
    assert sink.settings.max_attempts == 6
    with pytest.raises(ConfigurationError, match="writes at least once"):
        MongoSink.builder().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(ConfigurationError, match="set a schema"):
        MongoSink.builder().set_uri(server.uri).set_database("shop").set_collection("cups").build()


def test_addresses_show_no_password() -> None:
    address = mongodb.MongoAddress("mongodb://me:letmein12@db/?tls=true", "shop", "cups")
    assert repr(address) == "MongoAddress('shop.cups')"
    with pytest.raises(ConfigurationError, match="begins with mongodb://") as raised:
        mongodb.MongoAddress("http://me:letmein12@db", "shop", "cups")
    assert "letmein12" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="names of a database and of a collection"):
        mongodb.MongoAddress("mongodb://db", "shop", "")
    with pytest.raises(ConfigurationError, match=r"the URI of shop.cups is not valid") as raised:
        mongodb.MongoAddress("mongodb://me:letmein12@db:port/", "shop", "cups").connect()
    assert "letmein12" not in str(raised.value)


def test_ids_that_are_equal_on_the_server_have_one_ordering_key() -> None:
    same = [1, Int64(1), 1.0, Decimal128("1.00")]
    assert len({find_ordering_key(id) for id in same}) == 1
    others = [True, "1", b"1", Binary(b"1", 5), {"a": 1}, {"a": 2}, None, 1.5, ObjectId(), 2, {"a": 1, "b": 2}]
    assert len({find_ordering_key(id) for id in [*others, 1]}) == len(others) + 1


def entry(name: str) -> MongoWrite:
    made = {"insert": MongoWrite.insert({"a": 1}), "given": MongoWrite.insert({"_id": 1}), "set": MongoWrite.set(1, {})}
    return made[name]


@pytest.mark.parametrize(
    ("name", "error", "outcome"),
    [
        ("insert", {"code": 11000, "errmsg": "E11000 index: _id_"}, "accepted"),
        ("insert", {"code": 11000, "keyPattern": {"name": 1}, "errmsg": "E11000 name, not _id"}, "rejected"),
        ("given", {"code": 11000, "keyPattern": {"_id": 1}}, "rejected"),
        ("set", {"code": 11000, "keyPattern": {"_id": 1}}, "again"),
        ("set", {"code": 11000, "keyPattern": {"name": 1}}, "rejected"),
        ("set", {"code": 112, "errmsg": "WriteConflict"}, "again"),
        ("set", {"code": 91}, "again"),
        ("set", {"code": 121, "errmsg": "Document failed validation"}, "rejected"),
        ("set", {"code": 13, "errmsg": "not authorized"}, "rejected"),
    ],
)
def test_errors_of_single_writes(name: str, error: dict[str, Any], outcome: str) -> None:
    is_there = "keyPattern" not in error
    result = read_errors([entry("set"), entry(name)], {"writeErrors": [{"index": 1, **error}]}, lambda id: is_there)
    assert outcome == (
        "again" if list(result.again) == [1] else "rejected" if list(result.rejected) == [1] else "accepted"
    )


def test_a_write_that_is_not_replicated_is_sent_again() -> None:
    details = {"writeConcernErrors": [{"code": 64, "errmsg": "waiting for replication timed out"}], "writeErrors": []}
    result = read_errors([entry("set"), entry("set")], details, lambda id: False)
    assert (list(result.again), result.reason) == ([0, 1], "waiting for replication timed out")


#: what the job of the next test does before some of its records; jobs of the local target share this process
BEFORE: dict[int, Callable[[], Any]] = {}


class Steps:
    """Turns numbers into writes, and does what `BEFORE` has for them."""

    def __call__(self, number: int) -> MongoWrite:
        if number in BEFORE:
            BEFORE[number]()
        return MongoWrite.set(number % 5, {"last": number, f"n{number}": 1})


def test_a_server_that_restarts_loses_nothing() -> None:
    """The server is killed and starts again while a job writes; values are set in order."""
    seed = commit_number()
    print(f"seed {seed}")
    choose = random.Random(seed)
    with mongo_server() as server:
        if server.is_complete:
            pytest.skip("mongo-java-server forgets its documents when it is killed")
        striking: list[threading.Thread] = []

        def strike() -> None:
            server.kill()
            striking.append(threading.Timer(choose.uniform(0, 0.3), server.start))
            striking[-1].start()

        BEFORE.update({choose.randint(100, 300): strike, 400: lambda: striking[-1].join()})
        write(server, list(range(600)), Steps())
        client = server.connect()
        for key in range(5):
            cup = client["shop"]["cups"].find_one({"_id": key})
            assert (cup["last"], len(cup)) == (595 + key, 122)
        client.close()


#: Nothing is sent before a checkpoint: the kit leaves writers as if they were killed, but their threads go on.
PATIENT = mongo_settings(interval_ms=-1)


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(server: MongoServer, database: Any, case: str) -> None:
    records = [(n % 4, n) for n in range(12)]

    def prepare() -> SinkUnderTest:
        database["cups"].delete_many({})
        sink: MongoSink[Any] = MongoSink(
            address(server), lambda record: MongoWrite.replace(record[0], {"n": record[1]}), PATIENT
        )
        return SinkUnderTest(
            sink,
            records,
            lambda: [(cup["_id"], cup["n"]) for cup in database["cups"].find({})],
            last_of_each(lambda record: record[0]),
            lambda record: record[0],
        )

    check_sink(prepare, case, places=4)


# --- the source -----------------------------------------------------------------------------------------------------

NOW = datetime.datetime(2020, 1, 2, 3, 4, 5)
#: in the order in which the server sorts them
MIXED_IDS: list[Any] = [None, -5, 1, 2.5, 7, "", "a", "tea", {"a": 1}, {"a": 2}, b"x", ObjectId(), False, True, NOW]


LAST_KIND = mongodb.find_kind(mongodb.pack_id(NOW))


def number_of(cup: dict[str, Any]) -> int:
    return int(cup["n"])


def fill(database: Any, ids: list[Any], size: int = 0) -> None:
    database["cups"].insert_many([{"_id": id, "n": number, "pad": "x" * size} for number, id in enumerate(ids)])


@pytest.mark.parametrize("ids", [list(range(300)), MIXED_IDS], ids=["numbers", "mixed"])
@pytest.mark.parametrize("strategy", [*PartitionStrategy])
def test_every_strategy_reads_each_document_once(
    server: MongoServer, database: Any, strategy: PartitionStrategy, ids: list[Any]
) -> None:
    fill(database, ids, 10_000 // len(ids))
    client = server.connect()
    client.drop_database("config")
    if strategy is PartitionStrategy.SHARDED:
        client["config"]["collections"].insert_one({"_id": "shop.cups", "key": {"_id": 1}, "uuid": "u"})
        bounds = [MinKeyId, *ids[:: len(ids) // 4][1:]]
        chunks = [{"_id": n, "ns" if n % 2 else "uuid": "shop.cups" if n % 2 else "u", "min": {"_id": bound}}
                  for n, bound in enumerate(bounds) if bound is not MinKeyId]  # fmt: skip
        client["config"]["chunks"].insert_many(chunks)
    source = builder(server).set_partition_strategy(strategy).set_partition_size(2_048).set_fetch_size(7)
    source = source.set_deserialization_schema(number_of).build()
    try:
        if strategy is PartitionStrategy.SPLIT_VECTOR or (
            strategy is PartitionStrategy.SAMPLE and not server.is_complete
        ):
            with pytest.raises(OperationError, match=r"cannot read shop.cups: OperationFailure: .*(split|sample)"):
                source.scan.find_splits()
            return
        splits = source.scan.find_splits()
        assert (len(splits) > 1) is (strategy is not PartitionStrategy.SINGLE)
        assert all(one.upper == other.lower for one, other in pairwise(splits))
        assert sorted(read(source, 2)) == list(range(len(ids)))
    finally:
        client.drop_database("config")
        client.close()


MinKeyId = object()


def test_ranges_of_mixed_ids_meet(server: MongoServer, database: Any) -> None:
    """Each document is in the range before an id or in the one from it on, and a position leaves out what was read."""
    fill(database, MIXED_IDS)
    order = {mongodb.pack_id(cup["_id"]): number for number, cup in enumerate(database["cups"].find(sort=[("_id", 1)]))}

    def select(split: mongodb.MongoSplit) -> list[int]:
        found = database["cups"].find(mongodb.build_range(split), {"_id": 1})
        return sorted(order[mongodb.pack_id(cup["_id"])] for cup in found)

    for packed, place in order.items():
        below = mongodb.MongoSplit(0, upper=packed, last_kind=LAST_KIND)
        above = mongodb.MongoSplit(1, lower=packed, last_kind=LAST_KIND)
        behind = mongodb.MongoSplit(1, after=packed, last_kind=LAST_KIND)
        everything = list(range(len(order)))
        assert select(below) == everything[:place], packed
        assert select(above) == everything[place:], packed
        assert select(behind) == everything[place + 1 :], packed


def test_positions_keep_the_types_of_ids() -> None:
    ids = [1, Int64(1), 1.0, "a", b"a", Binary(bytes(16), 4), None, True, {"b": 1, "a": [2]}, ObjectId(),
           Decimal128("1.10"), Timestamp(1, 2), MinKey(), MaxKey()]  # fmt: skip
    for id in ids:
        split = pickle.loads(pickle.dumps(mongodb.MongoSplit(0, after=mongodb.pack_id(id))))
        again = mongodb.unpack_id(split.after)
        assert again == id
        assert mongodb.pack_id(again) == split.after
    early = mongodb.pack_id(mongodb.bson("datetime_ms.DatetimeMS")(-(10**16)))
    assert mongodb.pack_id(mongodb.unpack_id(early)) == early


def test_not_a_number_as_an_id() -> None:
    """It is the least number, and compares with nothing."""
    after = mongodb.MongoSplit(0, after=mongodb.pack_id(float("nan")), last_kind=LAST_KIND)
    (condition,) = mongodb.build_range(after)["$and"]
    assert condition["$or"][0] == {"_id": {"$gte": float("-inf")}}
    least = mongodb.MongoSplit(0, after=mongodb.pack_id(None), last_kind=1)
    assert mongodb.build_range(least) == {"$and": [{"$or": [{"_id": {"$in": []}}]}]}
    assert mongodb.find_kind(mongodb.pack_id(Decimal128("NaN"))) == mongodb.find_kind(mongodb.pack_id(1))


def test_fields_filters_and_limits(server: MongoServer, database: Any) -> None:
    fill(database, list(range(100)), 5)
    source = builder(server).set_projected_fields("n").set_filter({"n": {"$gte": 90}})
    assert sorted(read(source.build()), key=number_of) == [{"_id": n, "n": n} for n in range(90, 100)]
    assert len(read(source.set_limit(3).set_fetch_size(2).build())) == 3
    assert read(source.set_limit(0).build()) == []
    assert read(builder(server, "none").build()) == []


def test_wrong_settings_of_a_source(server: MongoServer) -> None:
    with pytest.raises(ConfigurationError, match="fetch_size is 0"):
        builder(server).set_fetch_size(0).build()
    with pytest.raises(ConfigurationError, match="begins with mongodb://"):
        MongoSource.builder().build()


def test_a_collection_that_is_sharded_otherwise_is_refused(server: MongoServer, database: Any) -> None:
    fill(database, [1])
    source = builder(server).set_partition_strategy(PartitionStrategy.SHARDED).build()
    client = server.connect()
    try:
        with pytest.raises(ConfigurationError, match="is not sharded: leave out the partition strategy"):
            source.scan.find_splits()
        client["config"]["collections"].insert_one({"_id": "shop.cups", "key": {"_id": "hashed"}})
        with pytest.raises(ConfigurationError, match="and not by ranges of _id"):
            source.scan.find_splits()
        assert len(builder(server).build().scan.find_splits()) == 1
    finally:
        client.drop_database("config")
        client.close()


class LosingCursor:
    """A collection whose first cursors the server has closed after some documents."""

    def __init__(self, collection: Any, losses: int) -> None:
        self._collection, self.losses = collection, losses
        self.asked = 0

    def find(self, *arguments: Any, **more: Any) -> Any:
        from pymongo.errors import CursorNotFound

        self.asked += 1
        cursor = self._collection.find(*arguments, **more)
        is_lost, self.losses = self.losses > 0, self.losses - 1

        class Cursor:
            def __enter__(self) -> Cursor:
                return self

            def __exit__(self, *error: object) -> None:
                cursor.close()

            def __iter__(self) -> Any:
                for number, document in enumerate(cursor):
                    if is_lost and number == 5:
                        raise CursorNotFound("cursor id 5 not found", 43)
                    yield document

        return Cursor()


def test_a_cursor_that_the_server_has_closed_is_opened_again(server: MongoServer, database: Any) -> None:
    fill(database, list(range(30)))
    scan = builder(server).set_fetch_size(3).build().scan
    losing = LosingCursor(database["cups"], 4)
    read = [cup["_id"] for rows in scan.fetch(losing, mongodb.MongoSplit(0)) for cup in rows]
    assert (read, losing.asked) == (list(range(30)), 5)
    strict = builder(server).set_no_cursor_timeout(False).build().scan
    with pytest.raises(OperationError, match="cursor id 5 not found"):
        list(strict.fetch(LosingCursor(database["cups"], 1), mongodb.MongoSplit(0)))


def test_a_server_that_is_away_is_an_error(server: MongoServer) -> None:
    source = MongoSource.builder().set_uri("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50").set_database("shop")
    message = failure_of(lambda: read(source.set_collection("cups").build()))
    assert "MongoDB cannot read shop.cups: ServerSelectionTimeoutError" in message


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_source_keeps_the_rules(server: MongoServer, database: Any, case: str) -> None:
    fill(database, [*range(9), "a", "b", "c"], 100)

    def prepare() -> SourceUnderTest:
        source = builder(server).set_partition_size(600).set_fetch_size(2).set_deserialization_schema(number_of)
        source = source.set_partition_strategy(PartitionStrategy.PAGINATION)
        return SourceUnderTest(source.build(), list(range(12)))

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=4)
