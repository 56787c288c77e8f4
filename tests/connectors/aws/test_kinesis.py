"""The source and the sinks of Kinesis and Firehose, and their tables, on servers."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.connectors.postgres.test_tables import environment as create_tables
from tests.servers.aws import AwsServer, await_active, create_stream
from tests.table.connectors.tables import build_reader

from penstock.base.errors import ConfigurationError, JobExecutionError, UnsupportedError
from penstock.common import Configuration, SimpleStringSchema, WatermarkStrategy
from penstock.connectors.aws import client, kinesis_source
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.kinesis_sink import ClientBase
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.kinesis import (
    KinesisDeserializationSchema,
    KinesisFirehoseSink,
    KinesisRecord,
    KinesisStreamsSink,
    KinesisStreamsSource,
    PartitionKeyGenerator,
)
from penstock.sql.data.errors import ValidationError
from penstock.testing.connectors import SINK_CASES, SinkUnderTest, SourceRun, check_sink

_NUMBERS = itertools.count()
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    settings = Configuration()
    settings.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(parallelism)


def new_name() -> str:
    return f"stream-{next(_NUMBERS)}"


class ByLength(PartitionKeyGenerator[str]):
    def apply(self, element: str) -> str:
        return str(len(element))


def build_sink(server: AwsServer, arn: str, generator: PartitionKeyGenerator[Any] | None = None) -> Any:
    builder = KinesisStreamsSink.builder().set_stream_arn(arn).set_kinesis_client_properties(server.properties)
    builder = builder.set_serialization_schema(SimpleStringSchema()).set_max_batch_size(7).set_max_time_in_buffer_ms(5)
    return builder.set_partition_key_generator(generator or PartitionKeyGenerator.random()).build()


def build_source(server: AwsServer, arn: str, schema: Any = None, **config: str) -> KinesisStreamsSource[Any]:
    more = {key.replace("__", ".").replace("_", "-"): value for key, value in config.items()}
    properties = {"source.init.position": "TRIM_HORIZON", "source.shard.discovery.interval": "20 ms", **more}
    builder = KinesisStreamsSource.builder().set_stream_arn(arn).set_source_config({**server.properties, **properties})
    return builder.set_deserialization_schema(schema or SimpleStringSchema()).build()


def put(server: AwsServer, arn: str, values: Sequence[Any]) -> None:
    records = [{"Data": str(value).encode(), "PartitionKey": str(value)} for value in values]
    assert server.connect("kinesis").put_records(StreamARN=arn, Records=records)["FailedRecordCount"] == 0


def read_some(source: Any, count: int, parallelism: int = 1, run: SourceRun | None = None) -> list[Any]:
    run = run or SourceRun(source, parallelism, real_time=True)
    while len(run.arrived) < count:
        run.advance(100)
    return [value for _, value, _ in run.arrived]


def test_records_are_written_and_read(kinesis: AwsServer) -> None:
    arn = create_stream(kinesis, new_name(), 3)
    env = environment(2)
    env.from_collection([str(number) for number in range(100)]).sink_to(build_sink(kinesis, arn))
    env.execute()
    numbers = environment(2).from_source(build_source(kinesis, arn), WatermarkStrategy.no_watermarks(), "numbers")
    collected: Any = numbers.execute_and_collect()
    with collected as results:
        assert sorted(itertools.islice(results, 100), key=int) == [str(number) for number in range(100)]


class Whole(KinesisDeserializationSchema[KinesisRecord]):
    def deserialize(self, record: KinesisRecord) -> KinesisRecord:
        return record


def test_records_have_their_keys_times_and_numbers(kinesis: AwsServer) -> None:
    arn = create_stream(kinesis, new_name())
    put(kinesis, arn, ["ann", "bob"])
    source = build_source(kinesis, arn, Whole())
    run = SourceRun(source, real_time=True)
    ann, bob = read_some(source, 2, run=run)
    assert (ann.data, ann.partition_key, ann.shard_id) == (b"ann", "ann", "shardId-000000000000")
    assert int(ann.sequence_number) < int(bob.sequence_number)
    assert run.timestamps == [ann.timestamp, bob.timestamp]
    run.close()


def test_shards_are_split_and_merged_while_they_are_read(kinesis: AwsServer) -> None:
    name = new_name()
    arn, service = create_stream(kinesis, name, 2), kinesis.connect("kinesis")
    put(kinesis, arn, range(10))
    source = build_source(kinesis, arn, Whole())
    run = SourceRun(source, 2, real_time=True)
    read_some(source, 4, run=run)
    first = "shardId-000000000000"
    service.split_shard(StreamARN=arn, ShardToSplit=first, NewStartingHashKey=str(2**126))
    await_active(service, name)
    put(kinesis, arn, range(10, 30))
    run.restart(parallelism=3)
    read_some(source, 20, run=run)
    pair = {"ShardToMerge": "shardId-000000000003", "AdjacentShardToMerge": "shardId-000000000001"}
    service.merge_shards(StreamARN=arn, **pair)
    await_active(service, name)
    put(kinesis, arn, range(30, 50))
    run.restart(parallelism=1)
    records = read_some(source, 50, run=run)
    run.close()
    assert sorted(int(record.data) for record in records) == list(range(50))
    places = {shard: [n for n, record in enumerate(records) if record.shard_id == shard] for shard in
              {record.shard_id for record in records}}  # fmt: skip
    for shard in service.list_shards(StreamARN=arn)["Shards"]:
        for parent in (shard.get("ParentShardId"), shard.get("AdjacentParentShardId")):
            assert max(places.get(parent, [-1])) < min(places.get(shard["ShardId"], [50]))
        in_shard = [int(records[place].sequence_number) for place in places.get(shard["ShardId"], [])]
        assert in_shard == sorted(in_shard)
    assert {"shardId-000000000002", "shardId-000000000004"} <= set(places)


def test_the_latest_records_and_those_from_a_time_on(kinesis: AwsServer) -> None:
    arn = create_stream(kinesis, new_name())
    put(kinesis, arn, ["old"])
    record = read_some(source := build_source(kinesis, arn, Whole()), 1)[0]
    put(kinesis, arn, ["new"])
    second = str((record.timestamp + 1) / 1_000)
    at = {"source__init__position": "AT_TIMESTAMP", "source__init__timestamp": second}
    source = build_source(kinesis, arn, **at)
    assert read_some(source, 1) == ["new"]
    latest = SourceRun(build_source(kinesis, arn, source__init__position="LATEST"), real_time=True)
    while not latest.enumerator.snapshot_state(1).has_looked:
        latest.advance(1)
    put(kinesis, arn, ["newest"])
    # the service tells its time in seconds, so a few records of before may come too
    while "newest" not in [value for _, value, _ in latest.arrived]:
        latest.advance(10)
    latest.close()


def test_a_source_is_refused_in_micro_batch() -> None:
    builder = KinesisStreamsSource.builder().set_stream_arn(ARN).set_deserialization_schema(SimpleStringSchema())
    env = environment()
    env.set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH)
    env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "orders").print()
    with pytest.raises(ConfigurationError, match="does not run in MICRO_BATCH"):
        env.execute()


def test_shards_are_listed_page_by_page(kinesis: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    arn = create_stream(kinesis, new_name(), 3)
    monkeypatch.setattr(kinesis_source, "_PAGE", 1)
    service = kinesis_source.KinesisService(AwsSettings(kinesis.properties), arn, "test")
    assert len(service.list_shards().shards) == 3


def test_records_that_are_refused_are_sent_again(kinesis: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    arn = create_stream(kinesis, new_name())
    lock = threading.Lock()
    refused: list[Any] = []

    def refuse(self: Any) -> None:
        opened(self)
        put_records = self._client.put_records

        def answer(Records: list[Any], **more: Any) -> Any:
            with lock:
                some = Records[1:] if len(refused) < 5 else Records
                refused.extend(Records[: len(Records) - len(some)])
            result = put_records(Records=some, **more)
            if len(some) < len(Records):
                error = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "too fast"}
                return {"FailedRecordCount": 1, "Records": [error, *result["Records"]]}
            return result

        self._client.put_records = answer

    opened = ClientBase.open
    monkeypatch.setattr(ClientBase, "open", refuse)
    env = environment()
    env.from_collection([str(number) for number in range(50)]).sink_to(build_sink(kinesis, arn))
    env.execute()
    monkeypatch.undo()
    assert len(refused) == 5
    assert sorted(read_some(build_source(kinesis, arn), 50), key=int) == [str(number) for number in range(50)]


def failure_of(action: Callable[[], Any]) -> str:
    with pytest.raises(JobExecutionError) as raised:
        action()
    return str(raised.value)


def test_errors_that_do_not_pass_fail_the_job(kinesis: AwsServer) -> None:
    env = environment()
    env.from_collection(["tea"]).sink_to(build_sink(kinesis, f"{ARN}-missing"))
    assert "ResourceNotFoundException" in failure_of(env.execute)
    env = environment()
    env.from_collection(["tea"]).sink_to(build_sink(kinesis, ARN, Empty()))
    assert "a partition key has 1 to 256 characters; the generator returned ''" in failure_of(env.execute)
    source = build_source(kinesis, f"{ARN}-missing")
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "missing")
    message = failure_of(lambda: list(itertools.islice(stream.execute_and_collect(), 1)))
    assert "KinesisStreamsSource cannot list its shards: ResourceNotFoundException" in message
    assert "let-me-in" not in message


class Empty(PartitionKeyGenerator[str]):
    def apply(self, element: str) -> str:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(kinesis: AwsServer, case: str) -> None:
    def prepare() -> SinkUnderTest:
        arn = create_stream(kinesis, new_name())
        service = kinesis.connect("kinesis")

        def read() -> list[str]:
            shard = {"StreamARN": arn, "ShardId": "shardId-000000000000"}
            iterator = service.get_shard_iterator(ShardIteratorType="TRIM_HORIZON", **shard)["ShardIterator"]
            return [each["Data"].decode() for each in service.get_records(ShardIterator=iterator)["Records"]]

        return SinkUnderTest(build_sink(kinesis, arn), [str(n) for n in range(12)], read, exactly_once=False)

    check_sink(prepare, case, parallelisms=[1, 2], places=2)


def test_random_keys_differ_and_a_fixed_key_is_that_of_a_subtask() -> None:
    generator = PartitionKeyGenerator.random()
    assert len({generator.apply(None) for _ in range(10)}) == 10
    fixed = PartitionKeyGenerator.fixed()
    assert len({fixed.apply(None) for _ in range(10)}) == 1


# --- tables ----------------------------------------------------------------------------------------------------------


def ddl(server: AwsServer, arn: str, columns: str, more: str = "", partitioned: str = "", name: str = "t") -> str:
    options = f"'connector' = 'kinesis', 'stream.arn' = '{arn}', 'format' = 'json', {server.sql}"
    return f"CREATE TABLE {name} ({columns}) {partitioned} WITH ({options}{more})"


START = ", 'source.init.position' = 'TRIM_HORIZON'"


def first_rows(tables: Any, query: str, count: int) -> list[tuple[Any, ...]]:
    result = tables.execute_sql(query)
    with result.collect() as rows:
        return [tuple(row) for row in itertools.islice(rows, count)]


def test_a_table_is_written_by_its_partition_columns_and_read_with_metadata(kinesis: AwsServer) -> None:
    arn = create_stream(kinesis, new_name())
    tables = create_tables()
    by_name = ddl(kinesis, arn, "name STRING, n BIGINT", START, "PARTITIONED BY (name, n)")
    tables.execute_sql(by_name)
    tables.execute_sql("INSERT INTO t VALUES ('ann', 1), ('bob', 2)").wait()
    metadata = (
        "name STRING, n BIGINT, arrived TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, shard STRING METADATA FROM "
        "'shard-id' VIRTUAL, number STRING METADATA FROM 'sequence-number' VIRTUAL, "
        "k STRING METADATA FROM 'partition-key' VIRTUAL"
    )
    tables.execute_sql(ddl(kinesis, arn, metadata, START, name="m"))
    rows = first_rows(tables, "SELECT name, n, shard, k, arrived IS NOT NULL, CHAR_LENGTH(number) > 20 FROM m", 2)
    shard = "shardId-000000000000"
    assert sorted(rows) == [("ann", 1, shard, "ann|1", True, True), ("bob", 2, shard, "bob|2", True, True)]


def test_keys_of_a_table_without_partition_columns(kinesis: AwsServer) -> None:
    for partitioner, keys in (("fixed", 1), ("random", 4)):
        arn = create_stream(kinesis, new_name())
        tables = create_tables()
        tables.execute_sql(ddl(kinesis, arn, "n BIGINT", f", 'sink.partitioner' = '{partitioner}'"))
        tables.execute_sql("INSERT INTO t VALUES (1), (2), (3), (4)").wait()
        records = read_some(build_source(kinesis, arn, Whole()), 4)
        assert len({record.partition_key for record in records}) == keys


def test_rows_of_a_table_are_malformed(kinesis: AwsServer) -> None:
    arn = create_stream(kinesis, new_name())
    put(kinesis, arn, ["{", '{"n": 1}'])
    tables = create_tables()
    tables.execute_sql(ddl(kinesis, arn, "n BIGINT", START, name="strict"))
    with pytest.raises(JobExecutionError, match="shardId-000000000000"):
        first_rows(tables, "SELECT n FROM strict", 1)
    lenient = f"{START}, 'json.ignore-parse-errors' = 'true'"
    tables.execute_sql(ddl(kinesis, arn, "n BIGINT, k STRING METADATA FROM 'partition-key'", lenient))
    assert first_rows(tables, "SELECT n, k FROM t", 1) == [(1, '{"n": 1}')]


WRONG = {
    "'source.reader.type' = 'EFO'": (UnsupportedError, "enhanced fan-out"),
    "'source.reader.type' = 'FAST'": (ValidationError, "source.reader.type is POLLING, not 'FAST'"),
    "'source.init.position' = 'BEGIN'": (ValidationError, "source.init.position is one of LATEST"),
    "'source.init.position' = 'AT_TIMESTAMP'": (ValidationError, "AT_TIMESTAMP needs source.init.timestamp"),
    "'source.init.position' = 'AT_TIMESTAMP', 'source.init.timestamp' = 'now'": (ValidationError, "'now' is no time"),
    "'source.init.position' = 'AT_TIMESTAMP', 'source.init.timestamp' = '2026-01-31'": (
        ValidationError,
        "has no time zone",
    ),
    "'source.init.timestamp.format' = 'yyyy'": (UnsupportedError, "source.init.timestamp.format"),
    "'source.shard.get-records.max-record-count' = '0'": (ValidationError, "it must be 1 to 10000"),
    "'aws.credentials.provider' = 'SYS_PROP'": (UnsupportedError, "it reads properties of a Java process"),
    "'aws.credentials.provider' = 'ME'": (ValidationError, "aws.credentials.provider is one of AUTO, BASIC"),
    "'aws.credentials.provider' = 'ASSUME_ROLE'": (ValidationError, "needs aws.credentials.role.arn"),
    "'aws.region' = 'eu-west-1'": (ValidationError, "aws.region is 'eu-west-1', but the stream"),
}


@pytest.mark.parametrize("options", WRONG)
def test_options_of_a_table_that_are_refused(options: str) -> None:
    error, message = WRONG[options]
    statement = (
        f"CREATE TABLE t (n INT) WITH ('connector' = 'kinesis', 'stream.arn' = '{ARN}', 'format' = 'json', {options})"
    )
    with pytest.raises(error, match=message.replace("[", r"\[")):
        build_reader(statement)


def test_options_of_a_written_table_that_are_refused() -> None:
    tables = create_tables()
    for number, (options, partitioned, message) in enumerate(
        [
            ("'sink.batch.max-size' = '501'", "", "the service takes at most 500 rows"),
            ("'sink.partitioner' = 'mine'", "", "it must be random or fixed, not 'mine'"),
            ("'sink.partitioner' = 'fixed'", "PARTITIONED BY (n)", "the table is PARTITIONED BY columns"),
            ("'sink.requests.max-buffered' = '10'", "", "max_buffered_requests is 10; it must exceed"),
        ]
    ):
        base = f"'connector' = 'kinesis', 'stream.arn' = '{ARN}', 'format' = 'json', {options}"
        tables.execute_sql(f"CREATE TABLE t{number} (n INT) {partitioned} WITH ({base})")
        with pytest.raises(ValidationError, match=message):
            tables.execute_sql(f"INSERT INTO t{number} VALUES (1)")


# --- Firehose --------------------------------------------------------------------------------------------------------


def create_delivery(moto: AwsServer) -> tuple[str, Callable[[], bytes]]:
    """A delivery stream into a bucket, and a function that reads what it has delivered."""
    name, storage = new_name(), moto.connect("s3")
    storage.create_bucket(Bucket=name)
    destination = {"RoleARN": "arn:aws:iam::123456789012:role/r", "BucketARN": f"arn:aws:s3:::{name}"}
    moto.connect("firehose").create_delivery_stream(
        DeliveryStreamName=name, ExtendedS3DestinationConfiguration=destination
    )

    def read() -> bytes:
        objects = storage.list_objects_v2(Bucket=name).get("Contents", [])
        parts = [storage.get_object(Bucket=name, Key=each["Key"])["Body"].read() for each in objects]
        return b"".join(gzip.decompress(part) if part[:2] == b"\x1f\x8b" else part for part in parts)

    return name, read


def test_firehose_gets_records_and_rows(moto: AwsServer) -> None:
    name, read = create_delivery(moto)
    builder = KinesisFirehoseSink.builder().set_delivery_stream_name(name).set_max_time_in_buffer_ms(5)
    builder = builder.set_firehose_client_properties(moto.properties).set_serialization_schema(SimpleStringSchema())
    env = environment()
    env.from_collection([f"{number};" for number in range(20)]).sink_to(builder.build())
    env.execute()
    assert sorted(read().split(b";")) == sorted([b"", *[b"%d" % number for number in range(20)]])
    name, read = create_delivery(moto)
    tables = create_tables()
    options = f"'connector' = 'firehose', 'delivery-stream' = '{name}', 'format' = 'json', {moto.sql}"
    tables.execute_sql(f"CREATE TABLE f (n BIGINT) WITH ({options})")
    tables.execute_sql("INSERT INTO f VALUES (1)").wait()
    assert json.loads(read()) == {"n": 1}


# --- clients ---------------------------------------------------------------------------------------------------------


def test_builders_refuse_what_is_missing_or_wrong() -> None:
    source, sink, schema = KinesisStreamsSource.builder(), KinesisStreamsSink.builder(), SimpleStringSchema()
    wrong: list[tuple[Callable[[], Any], str]] = [
        (KinesisStreamsSource.builder().build, "set_deserialization_schema"),
        (lambda: source.set_deserialization_schema(str), "takes a DeserializationSchema"),
        (lambda: source.set_deserialization_schema(schema).build(), "a stream is named by its ARN"),
        (lambda: source.set_stream_arn(ARN).set_source_config({"source.x": "1"}).build(), "no property 'source.x'"),
        (lambda: source.set_source_config({"aws.x": "1"}).build(), "AWS has no property 'aws.x'"),
        (KinesisStreamsSink.builder().build, "set_partition_key_generator"),
        (lambda: sink.set_partition_key_generator(str), "takes a PartitionKeyGenerator"),  # type: ignore[arg-type]
        (sink.set_partition_key_generator(PartitionKeyGenerator.random()).build, "set_stream_name or set_stream_arn"),
        (lambda: sink.set_stream_name(ARN).build(), "set_stream_arn takes"),
        (lambda: sink.set_stream_name("orders").build(), "needs set_serialization_schema"),
        (lambda: sink.set_serialization_schema(schema).set_max_batch_size(501).build(), "at most 500 entries"),
        (KinesisFirehoseSink.builder().build, "set_delivery_stream_name"),
    ]
    for build, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            build()


def test_secrets_of_settings_are_hidden() -> None:
    keys = {client.ACCESS_KEY: "access", client.SECRET_KEY: "hush-hush-42"}
    settings = AwsSettings({client.REGION: "eu-west-1", **keys})
    assert settings.provider == "BASIC"
    assert "hush" not in repr(settings)
    assert AwsSettings({"aws.credentials.provider.basic.accesskeyid": "x"}).properties == {client.ACCESS_KEY: "x"}
    with pytest.raises(UnsupportedError, match="chain roles in a profile"):
        AwsSettings({client.PROVIDER: "ASSUME_ROLE", client.ROLE_ARN: "r", client.ROLE_PROVIDER: "ASSUME_ROLE"})


def test_each_provider_of_credentials(moto: AwsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    base = {client.REGION: "us-east-1", client.ENDPOINT: moto.endpoint}

    def find_key(**more: str) -> str:
        connected = AwsSettings({**base, **{getattr(client, name): value for name, value in more.items()}})
        credentials = connected.connect("sts", "tests")._request_signer._credentials
        return str(credentials.access_key)

    assert find_key(ACCESS_KEY="basic", SECRET_KEY="s") == "basic"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "variable")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert find_key(PROVIDER="ENV_VAR") == "variable"
    assert find_key() == "variable"
    file = tmp_path / "credentials"
    file.write_text("[me]\naws_access_key_id = profile\naws_secret_access_key = s\n")
    assert find_key(PROVIDER="PROFILE", PROFILE_PATH=str(file), PROFILE_NAME="me") == "profile"
    role = {"ROLE_ARN": "arn:aws:iam::123456789012:role/reader", "ROLE_STS_ENDPOINT": moto.endpoint}
    assert find_key(PROVIDER="ASSUME_ROLE", ROLE_SESSION="penstock", **role).startswith("ASIA")
    token = tmp_path / "token"
    token.write_text("token")
    assert find_key(PROVIDER="WEB_IDENTITY_TOKEN", TOKEN_FILE=str(token), **role).startswith("ASIA")
