"""The keyed workloads by hand: the bare loops in one process, and in two that hand each other their records.

Half of the events lie in each process's memory. A process takes a chunk of them, works out every record's key and
owner, pickles what is the other's, writes it to a socket, works on its own part, and then on what the other sent. There
is no engine: no checkpoints, no credit, no security, and a process waits for the other after every chunk.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from benchmarks.events import EVENTS_PER_MS, KEYS, OUT_OF_ORDER_MS, Event, make_events, share_of
from benchmarks.workloads import Emit, bare_keyed_reduce, bare_process_with_timer, bare_tumbling_count, select_key
from penstock.drivers.event_loop import rare_collections
from penstock.state.keys import assign_key_group, subtask_of_key_group

#: Records that a process takes at a time.
CHUNK_RECORDS: Final = 4096
MAX_PARALLELISM: Final = 128
#: Two processes' chunks are behind each other, which is more disorder than that of the events.
DISORDER_MS: Final = OUT_OF_ORDER_MS + 2 * CHUNK_RECORDS // EVENTS_PER_MS
#: More than a chunk takes, so that both may write before either reads.
SOCKET_BYTES: Final = 1 << 20

BareLoop = Callable[[Iterable[Event], Emit], None]

LOOPS: Final[dict[str, BareLoop]] = {
    "W2": bare_keyed_reduce,
    "W3": partial(bare_tumbling_count, out_of_order_ms=DISORDER_MS),
    "W4": partial(bare_process_with_timer, out_of_order_ms=DISORDER_MS),
}


def make_lines(count: int) -> list[str]:
    """The same events as JSON text."""
    return [json.dumps(event) for event in make_events(count)]


def parse(line: str) -> Event:
    """An event out of its text."""
    auction, price, timestamp = json.loads(line)
    return auction, price, timestamp


def exchanged(chunks: Iterator[Iterable[Event]], index: int, other: socket.socket) -> Iterator[list[Event]]:
    """This process's records, out of its own events and out of those that the other process sends."""
    owner = {
        key: subtask_of_key_group(assign_key_group(key, MAX_PARALLELISM), MAX_PARALLELISM, 2) for key in range(KEYS)
    }
    reading = other.makefile("rb", SOCKET_BYTES)
    for chunk in chunks:
        parts: tuple[list[Event], list[Event]] = ([], [])
        for event in chunk:
            parts[owner[select_key(event)]].append(event)
        payload = pickle.dumps(parts[1 - index], 5)
        other.sendall(struct.pack("<I", len(payload)) + payload)
        yield parts[index]
        (size,) = struct.unpack("<I", reading.read(4))
        yield pickle.loads(reading.read(size))


class Job(NamedTuple):
    """What to run, and in how many processes."""

    workload: str
    events: int
    processes: int
    #: whether the events are text that the loop parses
    is_text: bool = False
    #: whether two processes hand each other their records; otherwise each keeps what it has
    exchanges: bool = True


class Result(NamedTuple):
    """From the first record to the last, in seconds, and how many results there were."""

    seconds: float
    records: int


def _work(job: Job, index: int, other: socket.socket | None, told: Any) -> None:
    """What one process does; tells when it began and ended (ns), and how many results it had."""
    events = share_of(make_lines if job.is_text else make_events, job.events, index, job.processes)
    records = 0

    def emit(_: Any) -> None:
        nonlocal records
        records += 1

    chunks: Iterator[Iterable[Event]] = (
        events[start : start + CHUNK_RECORDS] for start in range(0, len(events), CHUNK_RECORDS)
    )
    if job.is_text:
        chunks = ([parse(line) for line in chunk] for chunk in cast("Iterator[list[str]]", chunks))
    if other is not None:  # until both are ready
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        other.sendall(b"!")
        other.recv(1)
        if job.exchanges:
            chunks = cast("Iterator[Iterable[Event]]", exchanged(chunks, index, other))
    began = time.monotonic_ns()
    with rare_collections():
        LOOPS[job.workload](chain.from_iterable(chunks), emit)
    told.put((began, time.monotonic_ns(), records))


def run(job: Job) -> Result:
    """One run, in processes of its own."""
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    ends: tuple[socket.socket | None, ...] = (None,)
    if job.processes == 2:
        ends = socket.socketpair()
    working = [context.Process(target=_work, args=(job, index, end, told)) for index, end in enumerate(ends)]
    for process in working:
        process.start()
    for end in filter(None, ends):
        end.close()
    for process in working:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{job.workload} by hand: a process ended with exit code {process.exitcode}")
    found = [told.get() for _ in working]
    seconds = (max(ended for _, ended, _ in found) - min(began for began, _, _ in found)) / 1e9
    return Result(seconds, sum(records for _, _, records in found))
