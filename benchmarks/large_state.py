"""W8: keyed state on RocksDB, larger than what is kept in memory; beside a loop over rocksdict and pickle.

A value of about 200 bytes for each of the events' keys is read, changed and written. Both sides give RocksDB the same
block cache and write buffers, a small part of the state; Penstock keeps a few objects in front of it besides.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from benchmarks.events import Event, EventsSpec, SharedEvents
from benchmarks.workloads import Emit, Workload, select_key, without_time
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

#: The auctions are spread over so many times as many keys.
SPREAD = 100
CACHE_BYTES = 4 << 20
WRITE_BUFFER_BYTES = 4 << 20
OBJECT_CACHE_BYTES = 2 << 20
Profile = tuple[int, int, str]


def wide_key_of(event: Event) -> int:
    return select_key(event) * SPREAD + event[1] % SPREAD


def changed(profile: Profile | None, event: Event) -> Profile:
    if profile is None:
        return (1, event[1], f"{event[0]:0180d}")
    return (profile[0] + 1, max(profile[1], event[1]), profile[2])


def rocksdict_loop(events: list[Event], emit: Emit) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(CACHE_BYTES))
        blocks.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        store = Rdict(folder, options)
        for event in events:
            key = b"%d" % wide_key_of(event)
            found = store.get(key)
            profile = changed(None if found is None else pickle.loads(found), event)
            store[key] = pickle.dumps(profile, protocol=5)
            emit((event[0], profile[0]))
        store.close()


class Profiles(KeyedProcessFunction):
    """Keeps a profile a key."""

    def open(self, runtime_context: Any) -> None:
        self.profile = runtime_context.get_state(ValueStateDescriptor("profile"))

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        profile = changed(self.profile.value(), value)
        self.profile.update(profile)
        return [(value[0], profile[0])]


def profiles(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return env.from_source(SharedEvents(spec), without_time(), "events").key_by(wide_key_of).process(Profiles())


LARGE_STATE = Workload(
    "large state on RocksDB",
    rocksdict_loop,
    profiles,
    twin_name="rocksdict and pickle",
    share=0.2,
    options={
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.block.cache-size": f"{CACHE_BYTES}b",
        "state.backend.rocksdb.writebuffer.size": f"{WRITE_BUFFER_BYTES}b",
        "state.backend.rocksdb.object-cache-size": f"{OBJECT_CACHE_BYTES}b",
    },
)
