"""The `savepoint` connector over running jobs: consistent rows, shared snapshots, and what is left of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import CheckpointError, OperationError, PenstockError
from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.sql.connectors.running_jobs import GRACE_SECONDS, SNAPSHOTS, Claim, ObservedJob, Snapshots
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

KEYS = 50
TOKEN = "a-token-of-the-tests"


def environment(folder: Path, **options: str) -> TableEnvironment:
    """Tables on the local target with two subtasks; a double underscore in the name of an option is a full stop."""
    settings = {
        "execution.target": "local",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    settings |= {name.replace("__", "."): value for name, value in options.items()}
    builder = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(builder.with_configuration(Configuration.from_dict(settings)).build())


def begin_counting(tables: TableEnvironment) -> Any:
    """A job that counts by key, and the sum of all counts is the number of records; returns its client."""
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '20000', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1000000000')"
    )
    tables.execute_sql("CREATE TABLE counts (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    insert = f"INSERT INTO counts SELECT MOD(id, {KEYS}), COUNT(*) FROM numbers GROUP BY MOD(id, {KEYS})"
    client = tables.execute_sql(insert).get_job_client()
    assert client is not None
    return client


def create_live(tables: TableEnvironment, name: str = "live", **options: str) -> None:
    """Create a table of the running counts; the columns of state are the query's."""
    options = {"snapshot__max_age": "0 s", "snapshot__min_pause": "0 s", **options}
    more = "".join(f", '{key.replace('__', '.').replace('_', '-')}' = '{value}'" for key, value in options.items())
    tables.execute_sql(
        f"CREATE TABLE {name} (`rows` BIGINT) WITH ('connector' = 'savepoint', "
        f"'operator.name' = 'Group Aggregate', 'state.name' = 'group_columns'{more})"
    )


def last_row(tables: TableEnvironment, query: str) -> list[Any]:
    """The last row of a query, which is repeated until the job has seen records."""
    while True:
        with tables.execute_sql(query).collect() as rows:
            changes = list(rows)
        if changes and changes[-1][0]:
            return list(changes[-1])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[TableEnvironment, Any]]:
    """Tables and the client of a job that counts."""
    tables = environment(tmp_path)
    client = begin_counting(tables)
    yield tables, client
    client.cancel().result()
    client.get_job_execution_result().exception()
    SNAPSHOTS.delete_all()


def test_queries_see_the_state_of_a_running_job(running: tuple[TableEnvironment, Any]) -> None:
    """Each sees one cut, later ones a later one; both tables of a statement see the same."""
    tables, client = running
    create_live(tables, job__id=str(client.get_job_id()))
    create_live(tables, "again", job__name="insert-into_default_catalog.default_database.counts")
    known = 0
    for _ in range(3):
        keys, records = last_row(tables, "SELECT COUNT(*), SUM(`rows`) FROM live")
        assert records > known
        assert keys == min(records, KEYS)
        known = records
    both = "SELECT SUM(n), SUM(m) FROM (SELECT `rows` n, 0 m FROM live UNION ALL SELECT 0 n, `rows` m FROM again)"
    first, second = last_row(tables, both)
    assert first == second > known


def test_explain_takes_no_snapshot_and_snapshots_are_shared_while_new_enough(
    running: tuple[TableEnvironment, Any],
) -> None:
    tables, client = running
    create_live(tables, "newest", job__id=str(client.get_job_id()))
    last_row(tables, "SELECT COUNT(*) FROM newest")
    create_live(tables, job__id=str(client.get_job_id()), snapshot__max_age="1 min")
    before = SNAPSHOTS.paths()
    tables.execute_sql("EXPLAIN SELECT * FROM live")
    assert SNAPSHOTS.paths() == before
    answers = [last_row(tables, "SELECT COUNT(*), SUM(`rows`) FROM live") for _ in range(2)]
    assert answers[0] == answers[1]
    assert SNAPSHOTS.paths() == before
    path = before[-1]
    assert Path(path).parent.name == "state-queries"
    SNAPSHOTS.delete_all()
    assert not Path(path).exists()


def test_a_rate_holds_a_query_back(running: tuple[TableEnvironment, Any]) -> None:
    """Without this the rows of a small state would come at once."""
    tables, client = running
    create_live(tables, "fast", job__id=str(client.get_job_id()))
    last_row(tables, "SELECT COUNT(*) FROM fast")
    create_live(tables, job__id=str(client.get_job_id()), scan__rows_per_second="20")
    begun = time.monotonic()
    last_row(tables, "SELECT COUNT(*) FROM live")
    assert time.monotonic() - begun > 1.0
    create_live(tables, "no_rows", job__id=str(client.get_job_id()), scan__rows_per_second="0")
    with pytest.raises(ValidationError, match="at least 1"):
        tables.execute_sql("SELECT * FROM no_rows")


class Remember(KeyedProcessFunction):
    """Counts by key in keyed state."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


def slowly(number: int) -> int:
    """One of five keys; it rests from time to time."""
    if number % 100 == 0:
        time.sleep(0.005)
    return number % 5


def test_keyed_state_on_rocksdb(tmp_path: Path) -> None:
    """Which a checkpoint has in RocksDB's own files; and errors that name the operator and the job."""
    tables = environment(tmp_path)
    settings = {
        "execution.target": "local",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(tmp_path / "of_rocksdb"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    numbers = env.from_collection(range(10**6)).map(slowly)
    numbers.key_by(lambda number: number).process(Remember()).uid("remember").filter(lambda _: False).print()
    job = env.execute_async("remembering")
    tables.execute_sql(
        "CREATE TABLE live (k INT, `count` INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'savepoint', "
        "'job.name' = 'remembering', 'operator.uid' = 'remember', 'snapshot.max-age' = '0 s', "
        "'snapshot.min-pause' = '0 s')"
    )
    while last_row(tables, "SELECT COUNT(*), SUM(`count`) FROM live")[0] < 5:
        pass
    tables.execute_sql("ALTER TABLE live SET ('operator.uid' = 'forgotten')")
    with pytest.raises(ValidationError, match=r"'remembering' \(.*\): no operator with uid 'forgotten'; there are"):
        tables.execute_sql("SELECT * FROM live")
    job.cancel().result()
    job.get_job_execution_result().exception()
    SNAPSHOTS.delete_all()


def test_errors_name_the_job_and_the_remedy(running: tuple[TableEnvironment, Any], tmp_path: Path) -> None:
    """Of jobs that are unknown, have ended, or have nowhere to write."""
    tables, client = running
    job_id = str(client.get_job_id())
    create_live(tables, "stranger", job__id="0" * 32)
    with pytest.raises(ValidationError, match=rf"no job '0+' runs here; there are: .*{job_id}.*'job.rest-address'"):
        tables.execute_sql("SELECT * FROM stranger")
    create_live(tables, "two", job__id="0" * 32, job__name="x")
    with pytest.raises(ValidationError, match=r"'job\.id' and 'job\.name'"):
        tables.execute_sql("SELECT * FROM two")
    without = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .with_configuration(Configuration.from_dict({"execution.target": "local", "pipeline.name": "without"}))
        .build()
    )
    other = begin_counting(without)
    create_live(tables, "nowhere", job__name="without")
    with pytest.raises(ValidationError, match=r"job 'without' .*: it has no directory.*execution.checkpointing.savep"):
        tables.execute_sql("SELECT * FROM nowhere")
    create_live(tables, "somewhere", job__name="without", snapshot__directory=str(tmp_path / "snapshots"))
    assert last_row(tables, "SELECT SUM(`rows`) FROM somewhere")[0] > 0
    other.cancel().result()
    assert isinstance(other.get_job_execution_result().exception(), PenstockError)
    with pytest.raises(ValidationError, match=r"is CANCELED.*'state.path'"):
        tables.execute_sql("SELECT * FROM somewhere")


def test_a_job_behind_a_rest_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a session: with its token, by name or id."""
    from penstock.server.attachment import _attachment

    # An earlier test may have started the API of this process, with another token.
    monkeypatch.setattr(_attachment, "_server", None)
    tables = environment(tmp_path, rest__port="0", penstock__rest__token=TOKEN)
    client = begin_counting(tables)
    assert _attachment._server is not None
    address = _attachment._server.url
    options = {"job__rest_address": address, "job__rest_token": TOKEN, "snapshot__directory": str(tmp_path / "queries")}
    create_live(tables, job__id=str(client.get_job_id()), **options)
    keys, records = last_row(tables, "SELECT COUNT(*), SUM(`rows`) FROM live")
    assert keys == min(records, KEYS)
    create_live(tables, "stranger", job__name="nobody", **options)
    with pytest.raises(ValidationError, match=r"no job 'nobody' runs here; there are: .*the session at http"):
        tables.execute_sql("SELECT * FROM stranger")
    wrong = {**options, "job__rest_token": "another"}
    create_live(tables, "refused", job__id=str(client.get_job_id()), **wrong)
    with pytest.raises(ValidationError, match=r"answers 40.*set 'job.rest-token'"):
        tables.execute_sql("SELECT * FROM refused")
    create_live(tables, "silent", job__name="nobody", job__rest_address="localhost:1")
    with pytest.raises(ValidationError, match="no REST API answers at http://localhost:1"):
        tables.execute_sql("SELECT * FROM silent")
    client.cancel().result()
    client.get_job_execution_result().exception()
    SNAPSHOTS.delete_all()


# --- snapshots alone --------------------------------------------------------------------------------------------------


class MadeUpJob(ObservedJob):
    """Takes a savepoint at once, or whenever the test says."""

    key = title = "made-up"

    def __init__(self) -> None:
        self.taken: list[Future[str]] = []
        self.is_fast = True

    def begin_savepoint(self) -> Future[str]:
        """See `ObservedJob`."""
        future: Future[str] = Future()
        self.taken.append(future)
        if self.is_fast:
            future.set_result(f"savepoint-{len(self.taken)}")
        return future


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


def nothing() -> None:
    """Go on."""


class Rig:
    """Snapshots on a clock of the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.job = MadeUpJob()
        self.deleted: list[str] = []
        self.snapshots = Snapshots(self.deleted.append, self.clock)

    def claim(self, max_age: float = 0.0, pause: float = 0.0, check: Callable[[], None] = nothing) -> Claim:
        """Claim a snapshot for ten minutes."""
        return self.snapshots.claim(self.job, self.clock() - max_age, pause, 600.0, check)

    def wait_until_deleted(self, count: int) -> None:
        """Wait for the thread that deletes snapshots."""
        while len(self.deleted) < count:
            time.sleep(0.001)


def test_a_known_snapshot_is_taken_while_new_enough() -> None:
    rig = Rig()
    first = rig.claim()
    rig.clock.seconds += 5
    assert rig.claim(max_age=5).path == first.path
    assert rig.claim(max_age=4).path == "savepoint-2"


def test_the_pause_counts_from_the_end_of_a_snapshot() -> None:
    """The query looks meanwhile whether it was cancelled."""
    rig = Rig()
    rig.claim()
    rig.clock.seconds += 1
    looks = []

    def pass_time() -> None:
        looks.append(rig.clock())
        rig.clock.seconds += 4

    assert rig.claim(pause=10, check=pass_time).path == "savepoint-2"
    assert looks == [101.0, 105.0, 109.0]


def test_a_snapshot_stays_as_long_as_a_claim() -> None:
    """Also after other claims have ended; and a while after the last one."""
    rig = Rig()
    first, second = rig.claim(), rig.claim(max_age=1)
    assert rig.snapshots.keep(first)
    rig.snapshots.release(second, 0.0)
    rig.clock.seconds += 10_000
    rig.snapshots.release(first, GRACE_SECONDS)
    assert rig.snapshots.paths() == [first.path]
    rig.clock.seconds += GRACE_SECONDS
    rig.snapshots.release(second, 0.0)
    rig.wait_until_deleted(1)
    assert rig.snapshots.paths() == []
    assert not rig.snapshots.keep(first)
    assert rig.claim(max_age=100_000).path == "savepoint-2"


def test_a_cancelled_query_leaves_no_snapshot() -> None:
    """The job completes the savepoint nevertheless, and it is deleted then."""
    rig = Rig()
    rig.job.is_fast = False

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.claim(check=cancel)
    (future,) = rig.job.taken
    future.set_result("too-late")
    assert rig.deleted == ["too-late"]
    assert rig.snapshots.paths() == []


def test_a_failed_savepoint_does_not_block_the_next_one() -> None:
    rig = Rig()
    rig.job.is_fast = False

    def fail() -> None:
        rig.job.taken[-1].set_exception(CheckpointError("the disk is full"))

    with pytest.raises(CheckpointError, match="the disk is full"):
        rig.claim(check=fail)
    rig.job.is_fast = True
    assert rig.claim().path == "savepoint-2"


def test_a_snapshot_that_cannot_be_deleted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(path: str) -> None:
        raise OperationError(f"no right to delete {path}")

    snapshots = Snapshots(refuse, Clock())
    snapshots.claim(MadeUpJob(), 0.0, 0.0, 1.0, nothing)
    snapshots.delete_all()
    assert "savepoint-1 could not be deleted: no right" in caplog.text
