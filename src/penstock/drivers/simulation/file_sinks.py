"""Real file and Kafka sinks in simulated jobs, the outsiders that meddle with their files, and their final output (G9).

`SimulatedFileSystem` is the simulated disk as an fsspec file system, for connectors that write files. It counts as a
local one: `SimulatedFiles` handles operations outside fsspec's interface, such as syncing and holding files. A path
begins with the name of its world: `penstock-sim://sim-7/out/sink-1/part-0-0`.

`Outsiders` are other processes that work in the directories of simulated file sinks at the same time as the jobs.

- A *neighbour* is another job with a real sink at the same path. It writes, commits or dies at random. Its unfinished
  files are its own while it lives; its closed files are its own permanently.
- A *reader* of the output moves visible files away. The jobs continue and write nothing twice.
- A *mover* takes hidden files away, which is not allowed. A job that needs one fails and names it. A person then puts
  all of them back and starts the next job.

All of this uses its own random numbers.

`file_sink`, `written` and the functions between and after them choose directories of file sinks on the simulated disk,
and read their final output.

`SimulatedKafkaSink` is the real Kafka sink in simulated jobs, with a model of the brokers.
"""

from __future__ import annotations

import ast
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast
from zlib import crc32

import fsspec
from fsspec.spec import AbstractFileSystem

from penstock.base.durable_files import LocalFiles
from penstock.base.errors import MissingPathError
from penstock.codecs.serialization import SerializationSchema, SimpleStringSchema
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.file.buckets import BucketAssigner, RollingPolicy
from penstock.connectors.file.committer import FAIL, CommitError, FileCommittable
from penstock.connectors.file.part_files import STAGING, is_open_part, is_part
from penstock.connectors.file.sink import FileSink
from penstock.connectors.kafka.producer import Brokers, KafkaCommittable
from penstock.connectors.kafka.records import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink import KafkaSink, Transaction
from penstock.drivers.simulation.disk import PageCache, get_directory, make_directories
from penstock.drivers.simulation.outside_world import ModelBrokers, ModelTransaction, Outside, outside
from penstock.drivers.simulation.topology import Topology
from penstock.runtime.connector import Sink

PROTOCOL: Final = "penstock-sim"


def _locate(path: str) -> tuple[Outside, str]:
    """Return the world of a path, and the path in it."""
    name, _, rest = path.partition("/")
    return outside(name), rest.rstrip("/")


def _step(path: str) -> tuple[PageCache, str]:
    """Begin a process's step in a world's files and return them and the path; the process may die first."""
    world, name = _locate(path)
    world.on_file_step()
    return world.files, name


class SimulatedFiles(LocalFiles):
    """The operating system's file operations that connectors use."""

    def exists(self, path: str) -> bool:
        world, name = _locate(path)
        return name in world.files.files or world.files.is_directory(name)

    def is_directory(self, path: str) -> bool:
        world, name = _locate(path)
        return world.files.is_directory(name)

    def list_directories(self, path: str) -> list[str]:
        world, name = _locate(path)
        return [f"{path.partition('/')[0]}/{directory}" for directory in world.files.list_directories(name)]

    def make_directory(self, path: str) -> None:
        cache, name = _step(path)
        cache.make_directory(name)

    def remove_directory(self, path: str) -> None:
        cache, name = _step(path)
        cache.remove_directory(name)

    def replace(self, source: str, target: str) -> None:
        cache, old = _step(source)
        world, new = _locate(target)
        if old not in cache.files:
            raise MissingPathError(source)
        if not cache.is_directory(new.rpartition("/")[0]):
            raise MissingPathError(target)
        cache.rename(old, new)
        if old in world.held:
            world.held[new] = world.held.pop(old)

    def sync_file(self, file: BinaryIO) -> None:
        cast(Any, file).sync()

    def sync_directory(self, path: str) -> None:
        cache, name = _step(path)
        if not cache.is_directory(name):
            raise MissingPathError(path)
        cache.sync_directory(name)

    def hold(self, file: BinaryIO, path: str) -> bool:
        world, name = _locate(path)
        world.held[name] = world.process()
        return True

    def remove_unless_held(self, path: str) -> bool:
        world, name = _locate(path)
        if name in world.held and world.is_alive(world.held[name]):
            return False
        cache, name = _step(path)
        cache.unlink(name)
        return True


class _Stream:
    """A file being written. Once it is removed, its bytes are dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        self.local_files = FILES
        cache, name = _step(path)
        cache.write(name, b"")

    def write(self, data: Any) -> int:
        """Add bytes."""
        cache, name = _step(self._path)
        if name in cache.files:
            cache.write(name, cache.files[name] + bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def sync(self) -> None:
        """Make the bytes durable."""
        cache, name = _step(self._path)
        if name in cache.files:
            cache.sync_file(name)

    def flush(self) -> None:
        """Do nothing: all bytes are already in the page cache."""

    def close(self) -> None:
        """Release the file."""
        world, name = _locate(self._path)
        world.held.pop(name, None)


class SimulatedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The file system described above."""

    protocol = (PROTOCOL, "file")
    local_files = SimulatedFiles()

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        return _Stream(path) if mode == "wb" else io.BytesIO(self.cat_file(path))

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        world, name = _locate(self._strip_protocol(path))
        data = world.files.files.get(name)
        if data is not None:
            return {"name": path, "size": len(data), "type": "file"}
        if world.files.is_directory(name):
            return {"name": path, "size": 0, "type": "directory"}
        raise MissingPathError(path)

    def find(self, path: str, **more: Any) -> list[str]:
        path = self._strip_protocol(path)
        world, name = _locate(path)
        return sorted(f"{path.partition('/')[0]}/{file}" for file in world.files.below(name))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        world, name = _locate(self._strip_protocol(path))
        if name not in world.files.files:
            raise MissingPathError(path)
        return world.files.files[name][start:end]

    def rm_file(self, path: str) -> None:
        cache, name = _step(self._strip_protocol(path))
        if name not in cache.files:
            raise MissingPathError(path)
        cache.unlink(name)


FILES: Final = SimulatedFileSystem.local_files
fsspec.register_implementation(PROTOCOL, SimulatedFileSystem)


#: The directory of their output.
OUT: Final = "out"
#: The directories for output taken by readers, and for hidden files taken by others.
TAKEN: Final = "taken"
ASIDE: Final = "aside"
#: The bucket of the other jobs' sinks.
NEIGHBOURS: Final = "neighbours"


def is_visible(path: str) -> bool:
    """Return whether readers of the output read a file."""
    return not any(name.startswith(".") for name in path.split("/"))


READER, MOVER = "reader", "mover"
#: The processes that may move files in worlds with file sinks; one of them is drawn.
KINDS: Final = (None, None, READER, MOVER)
NEIGHBOUR_SHARE: Final = 0.4
MOVES_MAX: Final = 3
NEIGHBOURS_MAX: Final = 4
#: How likely one of them acts per `look`: after a step of a driver of epochs, after a step of a driver of batches, and
#: after an action of a streaming simulation.
ACTS: Final = 0.1
ACTS_OF_BATCHES: Final = 0.3
ACTS_OF_STREAMS: Final = 0.004


def choose_meddler(world: str) -> str | None:
    """Return the process that moves files in a world: READER, MOVER or None."""
    return random.Random(f"who moves files of {world}").choice(KINDS)


@dataclass(frozen=True)
class _Host:
    """A neighbour's task as seen by its writer."""

    job_id: str
    operator_id: str = "sink"
    subtask_index: int = 0
    parallelism: int = 1
    attempt: int = 0
    run: str = ""
    restored_checkpoint_id: int | None = None
    forerunners: tuple[str, ...] = ()
    owes_nothing: bool = False

    def now_ms(self) -> int:
        """Return 0: time stands still."""
        return 0

    def count(self, name: str, increment: int = 1) -> None:
        """Ignore the count."""

    def emit_to_client(self, payload: bytes) -> None:
        """Ignore the payload."""


class _Neighbour:
    """Another job."""

    def __init__(self, name: str, base: str) -> None:
        self.name = name
        self.is_alive = True
        host = _Host(name)
        builder = FileSink.for_row_format(base, SimpleStringSchema())
        sink: Any = builder.with_bucket_assigner(BucketAssigner.by(lambda line: NEIGHBOURS)).build()
        self._writer: Any = sink.create_writer(host)
        self._committer: Any = sink.create_committer(host)
        self._open: list[str] = []
        #: whether it was alive when a job's sinks last ended
        self.outlives_sinks = False
        #: the lines of its closed files and of its visible files
        self.closed: list[tuple[FileCommittable, list[str]]] = []
        self.visible: list[str] = []

    def has(self, path: str) -> bool:
        """Return whether a file is in its staging directory."""
        return f"/{self._writer._names.staging.rpartition('/')[2]}/" in path

    def write(self, line: str) -> None:
        """Add a line to the open file."""
        self._writer.write_batch([line], None)
        self._open.append(line)

    def close_files(self) -> None:
        """Close the open files, as at a barrier."""
        for committable in self._writer.prepare_commit():
            self.closed.append((committable, self._open))
        self._open = []

    def commit(self) -> None:
        """Commit the closed files, as when a checkpoint has completed."""
        self._committer.commit([committable for committable, _ in self.closed])
        self.visible += [line for _, lines in self.closed for line in lines]
        self.closed.clear()


class Outsiders:
    """Runs these processes. `sinks`: the names of the file sinks; `are_faults_over`: if true, none of them acts."""

    def __init__(
        self,
        world: str,
        outside: Outside,
        sinks: list[str],
        are_faults_over: Callable[[], bool],
        write: Callable[[str], None],
        acts: float = ACTS,
        batches: bool = False,
    ) -> None:
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        self._world, self._outside, self._sinks = world, outside, sinks
        self._own = random.Random(f"others at files of {world}")
        self._has_neighbours = self._own.random() < NEIGHBOUR_SHARE
        kind = choose_meddler(world)
        # While a batch commits, part of its output is visible and may still be taken back.
        self._meddler = None if batches and kind == READER else kind
        self._acts = ACTS_OF_BATCHES if batches else acts
        self._are_over = are_faults_over
        self._write = write
        self._neighbours: list[_Neighbour] = []
        #: the hidden files that were moved away, and their original paths
        self._aside: dict[str, str] = {}
        #: why the last job failed, if a missing file was the reason
        self.lack: str | None = None

    @property
    def _files(self) -> PageCache:
        return self._outside.files

    def is_alive(self, process: str) -> bool:
        """Return whether this is the process of a live neighbour."""
        return any(neighbour.is_alive and neighbour.name == process for neighbour in self._neighbours)

    def look(self) -> None:
        """Let one of the processes act, at random; called after something has happened."""
        if not self._sinks or not (self._has_neighbours or self._meddler) or self._are_over() or self._files.is_off:
            return
        if self._own.random() < self._acts:
            if self._has_neighbours and (self._meddler is None or self._own.random() < 0.5):
                self._neighbour_acts()
            elif self._meddler == READER:
                self._take()
            elif self._meddler == MOVER and self.seen["file moved away"] < MOVES_MAX:
                self._move()

    def on_power_cut(self) -> None:
        """End all neighbours."""
        for neighbour in self._neighbours:
            neighbour.is_alive = False

    @contextmanager
    def _as(self, name: str) -> Iterator[None]:
        """Run the block as a process that has no faults."""
        outside, files = self._outside, self._files
        before = outside.process, outside.on_file_step, files.before_step
        outside.process, outside.on_file_step, files.before_step = lambda: name, lambda: None, lambda: None
        try:
            yield
        finally:
            outside.process, outside.on_file_step, files.before_step = before

    # --- neighbours --------------------------------------------------------------------------------------------------

    def _neighbour_acts(self) -> None:
        own, now = self._own, next((neighbour for neighbour in self._neighbours if neighbour.is_alive), None)
        if now is None:
            if len(self._neighbours) == NEIGHBOURS_MAX:
                return
            name = f"neighbour-{len(self._neighbours)}"
            with self._as(name):
                now = _Neighbour(name, f"{PROTOCOL}://{self._world}/{OUT}/{own.choice(self._sinks)}")
                self._neighbours.append(now)
                now.write(f"{name}: a line")
            self._write(f"{name} begins")
            self.seen["neighbour began"] += 1
            return
        act = own.choice(("write", "write", "close", "commit", "die"))
        with self._as(now.name):
            self._does(now, act)

    def _does(self, now: _Neighbour, act: str) -> None:
        self._write(f"{now.name}: {act}")
        try:
            if act == "write":
                now.write(f"{now.name}: another line")
            elif act == "close":
                now.close_files()
            elif act == "commit":
                now.close_files()
                now.commit()
            else:
                now.is_alive = False
                self.seen["neighbour died"] += 1
        except (CommitError, FileNotFoundError) as error:
            now.is_alive = False
            self.violations.append(f"neighbour: {error}")

    # --- those who move files ----------------------------------------------------------------------------------------

    def _take(self) -> None:
        paths = [path for sink in self._sinks for path in self._files.below(f"{OUT}/{sink}") if is_visible(path)]
        paths = [path for path in paths if f"/{NEIGHBOURS}/" not in path]
        if paths:
            path = self._own.choice(paths)
            self._write(f"a reader takes {path}")
            self.seen["file taken"] += 1
            with self._as(READER):
                self._files.sync_directory(get_directory(path))
                self._move_file(path, f"{TAKEN}/{path.removeprefix(f'{OUT}/')}")

    def _move(self) -> None:
        paths = [
            path
            for sink in self._sinks
            for path in self._files.below(f"{OUT}/{sink}/{STAGING}")
            if is_part(path.rpartition("/")[2]) and not self.is_of_a_neighbour(path)
        ]
        if paths:
            path = self._own.choice(paths)
            self._write(f"somebody takes {path} away")
            self.seen["file moved away"] += 1
            name = f"{ASIDE}/{len(self._aside)}"
            self._aside[name] = path
            with self._as(MOVER):
                self._files.sync_file(path)
                self._files.sync_directory(get_directory(path))
                self._move_file(path, name)

    def is_of_a_neighbour(self, path: str) -> bool:
        """Return whether the path is a hidden file of another job."""
        return any(neighbour.has(path) for neighbour in self._neighbours)

    def on_sinks_end(self) -> None:
        """Note which neighbours are alive: the ending sinks of a job remove files left by dead ones."""
        for neighbour in self._neighbours:
            neighbour.outlives_sinks = neighbour.is_alive

    def may_leave(self, path: str) -> bool:
        """Return whether the path is a hidden file of another job that the ended sinks had no right to remove."""
        return any(
            neighbour.has(path) and (neighbour.outlives_sinks or not is_open_part(path.rpartition("/")[2]))
            for neighbour in self._neighbours
        )

    def _move_file(self, path: str, to: str) -> None:
        make_directories(self._files, get_directory(to))
        self._files.rename(path, to)
        self._files.sync_directory(get_directory(path))
        self._files.sync_directory(get_directory(to))

    def explain(self, failure: str) -> bool:
        """Return whether a task failed because a file was moved away, and its error names the file."""
        return any(self._says(failure, path) for path in self._aside.values())

    def _says(self, failure: str, path: str) -> bool:
        name = path.rpartition("/")[2]
        final = name[1:].rpartition(".open." if is_open_part(name) else ".closed.")[0]
        return f"{path} is gone" in failure or f"/{final}: it is missing" in failure

    def on_failure(self, reason: str) -> bool:
        """Handle the failure of a job: if it lacked a file, its error must name the file, and all files are put back.

        Return whether a missing file was the reason.
        """
        if "cannot commit" not in reason:
            return False
        if not self.explain(reason):
            self.violations.append(f"vanished: nobody has taken what a job misses: {reason.splitlines()[0]}")
            return False
        self.seen["job failed for want of a file"] += 1
        self.lack = reason
        with self._as(MOVER):
            for name, path in self._aside.items():
                if name in self._files.files and not is_open_part(path.rpartition("/")[2]):
                    self._write(f"somebody puts {path} back")
                    make_directories(self._files, get_directory(path))
                    self._move_file(name, path)
        return True

    def end(self) -> None:
        """Finish after all jobs: commit the files of live neighbours, and check that all have their output."""
        for neighbour in self._neighbours:
            if neighbour.is_alive:
                with self._as(neighbour.name):
                    self._does(neighbour, "commit")
        paths = [path for path in self._files.below(OUT) if f"/{NEIGHBOURS}/" in path]
        actual = Counter(line for path in paths for line in self._files.files[path].decode().splitlines())
        expected = Counter(line for writer in self._neighbours for line in writer.visible)
        if actual != expected:
            self.violations.append(f"neighbour: {actual - expected} too many, {expected - actual} lost")
        for committable, _ in (closed for writer in self._neighbours for closed in writer.closed):
            path = committable.hidden_path.removeprefix(f"{PROTOCOL}://{self._world}/")
            if len(self._files.files.get(path, b"")) != committable.size_bytes:
                self.violations.append(f"neighbour: {path}, which was closed, is gone")


#: The share of worlds whose sinks write files.
SHARE: Final = 0.15
#: Small enough that files sometimes end between two checkpoints.
PART_BYTES: Final = 120


class Lines(SerializationSchema[Any]):
    """Serializes a record as a line with a Python literal; as user code, it sometimes fails."""

    def __init__(self, world: str) -> None:
        self._world = world

    def serialize(self, value: Any) -> bytes:
        outside(self._world).on_user_call()
        return repr(value).encode()


def assign_bucket(record: Any) -> str:
    """Return the directory of a record: one of two, by its key."""
    return f"keys-{crc32(repr(record[0]).encode()) % 2}"


def file_sink(world: str, name: str) -> Sink[Any]:
    """Build a topology's sink that writes files."""
    builder = FileSink.for_row_format(f"{PROTOCOL}://{world}/{OUT}/{name}", Lines(world))
    builder.with_bucket_assigner(BucketAssigner.by(assign_bucket))
    if choose_meddler(world) == MOVER:
        builder.with_missing_part_files(FAIL)
    sink: Sink[Any] = builder.with_rolling_policy(RollingPolicy.default_rolling_policy(PART_BYTES)).build()
    return sink


def maybe_write_files(topology: Topology) -> None:
    """Make the sinks of some topologies write files."""
    if random.Random(f"file sinks of {topology.world}").random() < SHARE:
        for stage in topology.stages:
            stage.make_sink = file_sink if stage.kind == "sink" else None


def written(files: PageCache, name: str) -> list[Any]:
    """Read the records that a sink has made visible, file by file in the order of publication.

    Includes files that readers have taken away.
    """
    paths = [
        path
        for directory in (OUT, TAKEN)
        for path in files.below(f"{directory}/{name}")
        if is_visible(path) and f"/{NEIGHBOURS}/" not in path
    ]
    return [_record(line) for path in paths for line in files.files[path].decode().splitlines()]


def _record(line: str) -> Any:
    """Parse a line; a torn one becomes a record that is never expected."""
    try:
        return ast.literal_eval(line)
    except SyntaxError:
        return "torn", ("tally", 0, 0), line


def is_committed(world: Outside, committable: Any) -> bool:
    """Return whether a committable named by a savepoint is visible, and remains so after a power cut."""
    if isinstance(committable, KafkaCommittable):
        return world.kafka.is_committed(committable)
    if isinstance(committable, FileCommittable):
        path = committable.final_path.removeprefix(f"{PROTOCOL}://").partition("/")[2]
        return any(map(world.files.is_durable, (path, f"{TAKEN}/{path.removeprefix(f'{OUT}/')}")))
    return world.transactions[committable].is_committed


def hidden(files: PageCache) -> list[str]:
    """Return the files that file sinks have not made visible."""
    return [path for path in files.below(OUT) if not is_visible(path)]


def left_open(files: PageCache) -> list[str]:
    """Return the part files that were never closed."""
    return [path for path in hidden(files) if is_open_part(path.rpartition("/")[2])]


class SimulatedKafkaSink(KafkaSink[Any]):
    """Connects to the model brokers of its world instead of real ones."""

    def __init__(self, world: str, name: str) -> None:
        schema = KafkaRecordSerializationSchema(name, Lines(world))
        super().__init__({}, DeliveryGuarantee.EXACTLY_ONCE, schema, world)
        self._world = world

    def _brokers(self) -> Brokers:
        return ModelBrokers(outside(self._world).kafka)

    def _transaction(self, transactional_id: str) -> Transaction:
        return ModelTransaction(outside(self._world).kafka, transactional_id)


def kafka_sink(world: str, name: str) -> Sink[Any]:
    """Build a topology's sink that writes to Kafka."""
    return cast(Sink[Any], SimulatedKafkaSink(world, name))
