"""Real file sinks in simulated jobs, on the simulated disk, and what is to be seen of them in the end (G9)."""

from __future__ import annotations

import ast
import random
from typing import Any, Final
from zlib import crc32

from penstock.codecs.serialization import SerializationSchema
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.committer import FAIL, FileCommittable
from penstock.connectors.file.part_names import is_open_part
from penstock.connectors.file.rolling import RollingPolicy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.kafka.transactions import KafkaCommittable
from penstock.core.connector import Sink
from penstock.drivers.simulation.file_outsiders import MOVER, meddler_of
from penstock.drivers.simulation.file_places import NEIGHBOURS, OUT, TAKEN, is_visible
from penstock.drivers.simulation.file_system import PROTOCOL
from penstock.drivers.simulation.outside import Outside, outside
from penstock.drivers.simulation.page_cache import PageCache
from penstock.drivers.simulation.topology import Topology

#: The share of worlds in which sinks write files.
SHARE: Final = 0.15
#: So that a file ends between two checkpoints at times.
PART_BYTES: Final = 120


class Lines(SerializationSchema[Any]):
    """A record as a line that reads as Python; user code, which fails at times."""

    def __init__(self, world: str) -> None:
        self._world = world

    def serialize(self, value: Any) -> bytes:
        outside(self._world).on_user_call()
        return repr(value).encode()


def bucket_of(record: Any) -> str:
    """The directory of a record: one of two, by its key."""
    return f"keys-{crc32(repr(record[0]).encode()) % 2}"


def file_sink(world: str, name: str) -> Sink[Any]:
    """A sink of a topology that writes files."""
    builder = FileSink.for_row_format(f"{PROTOCOL}://{world}/{OUT}/{name}", Lines(world))
    builder.with_bucket_assigner(BucketAssigner.by(bucket_of))
    if meddler_of(world) == MOVER:
        builder.with_missing_part_files(FAIL)
    sink: Sink[Any] = builder.with_rolling_policy(RollingPolicy.default_rolling_policy(PART_BYTES)).build()
    return sink


def maybe_write_files(topology: Topology) -> None:
    """Let the sinks of some topologies write files."""
    if random.Random(f"file sinks of {topology.world}").random() < SHARE:
        for stage in topology.stages:
            stage.make_sink = file_sink if stage.kind == "sink" else None


def written(files: PageCache, name: str) -> list[Any]:
    """The records that a sink has made visible, file by file in the order in which these were.

    Also those that readers have taken away by now.
    """
    paths = [
        path
        for directory in (OUT, TAKEN)
        for path in files.below(f"{directory}/{name}")
        if is_visible(path) and f"/{NEIGHBOURS}/" not in path
    ]
    return [_record(line) for path in paths for line in files.files[path].decode().splitlines()]


def _record(line: str) -> Any:
    """What a line says; a torn one is a record that nobody expects."""
    try:
        return ast.literal_eval(line)
    except SyntaxError:
        return "torn", ("tally", 0, 0), line


def is_committed(world: Outside, committable: Any) -> bool:
    """Whether something that a savepoint names is to be seen, and will be after a power cut."""
    if isinstance(committable, KafkaCommittable):
        return world.kafka.is_committed(committable)
    if isinstance(committable, FileCommittable):
        path = committable.final_path.removeprefix(f"{PROTOCOL}://").partition("/")[2]
        return any(map(world.files.is_durable, (path, f"{TAKEN}/{path.removeprefix(f'{OUT}/')}")))
    return world.transactions[committable].is_committed


def hidden(files: PageCache) -> list[str]:
    """What file sinks have not made visible."""
    return [path for path in files.below(OUT) if not is_visible(path)]


def left_open(files: PageCache) -> list[str]:
    """The part files that were never closed."""
    return [path for path in hidden(files) if is_open_part(path.rpartition("/")[2])]
