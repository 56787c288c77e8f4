"""Real file sinks in simulated jobs, on the simulated disk, and their final output (G9)."""

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
from penstock.drivers.simulation.file_outsiders import MOVER, choose_meddler
from penstock.drivers.simulation.file_places import NEIGHBOURS, OUT, TAKEN, is_visible
from penstock.drivers.simulation.file_system import PROTOCOL
from penstock.drivers.simulation.outside import Outside, outside
from penstock.drivers.simulation.page_cache import PageCache
from penstock.drivers.simulation.topology import Topology

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
