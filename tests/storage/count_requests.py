"""Count what checkpoints ask of S3: `python -m tests.storage.count_requests`.

A job in virtual time has ten keyed operators one behind the other at parallelism 4, each a task with two states. It
prints the requests between two checkpoints, by kind, in the course of six of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import s3fs
from tests.servers.s3 import s3_server
from tests.spec.virtual_job import LedgerSink, Timed, VirtualJob, environment

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

OPERATORS, PARALLELISM, CHECKPOINTS = 10, 4, 6
INTERVAL_MS = 10_000


class Keep(KeyedProcessFunction):
    """Keeps how many records there were, and all of them."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.all.add(value)
        yield value


def requests_of(folder: str, backend: str, inline: str) -> list[Counter[str]]:
    """Those from one checkpoint to the next."""
    env = environment(
        PARALLELISM,
        **{
            "execution.checkpointing.dir": folder,
            "execution.checkpointing.interval": INTERVAL_MS,
            "execution.checkpointing.data-inline-threshold": inline,
            "state.backend.type": backend,
        },
    )
    stream: Any = env.from_source(Timed(50, (None,)), WatermarkStrategy.no_watermarks(), "records")
    for _ in range(OPERATORS):
        stream = stream.key_by(lambda record: record[1] % 97).process(Keep())
    stream.sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    counted: Counter[str] = Counter()
    found: list[Counter[str]] = []
    call = s3fs.S3FileSystem._call_s3

    async def spy(fs: Any, method: str, *arguments: Any, **options: Any) -> Any:
        counted[method] += 1
        return await call(fs, method, *arguments, **options)

    def take() -> None:
        found.append(Counter(counted))
        counted.clear()

    for number in range(1, CHECKPOINTS + 2):
        job.at(number * INTERVAL_MS + INTERVAL_MS // 2, take)
    job.at((CHECKPOINTS + 2) * INTERVAL_MS, job.cancel)
    with mock.patch.object(s3fs.S3FileSystem, "_call_s3", spy):
        job.run()
    return found[1:]


def main() -> None:
    """Print a line for each backend and threshold."""
    with s3_server() as server:
        for backend in ("hashmap", "rocksdb"):
            for inline in ("20 kb", "0 b"):
                for requests in requests_of(f"{server.new_bucket()}/checkpoints", backend, inline):
                    print(f"{backend}, {inline}: {requests.total()} requests, {dict(requests)}", flush=True)


if __name__ == "__main__":
    main()
