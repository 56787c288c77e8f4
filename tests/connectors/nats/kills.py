"""NATS JetStream → keyed state → JetStream, through SIGKILLs and suspensions at random moments.

`python -m tests.connectors.nats.kills --kills 20` publishes numbers at a rate, with ids. A job numbers the records of
each key and writes them to another stream. Again and again a worker, the driver with the job master, or the server gets
SIGKILL, or the server is suspended for a while, as if the link were broken. In the end no record may be missing; by
sequence (`--mode sequence`) each counts once in the state, and each result is stored once. `--mode durable` reads over
a durable consumer with two readers. The seed that it prints makes the choice of the victims and the pauses the same
again.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.kafka.kills import run_with_mode
from tests.connectors.rabbitmq.kills import VICTIMS, Broker, Feeder, Lines, QueueJob, run_kills
from tests.connectors.rabbitmq.pipeline import run_job
from tests.servers.queues import NatsServer, nats_server

from penstock.common import SimpleStringSchema
from penstock.datastream.connectors import Sink, Source
from penstock.datastream.connectors.nats import NatsSink, NatsSource


class NatsJob(QueueJob):
    """The job and its drivers, one after another."""

    program = "tests.connectors.nats.kills"


def run_pipeline(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program of the job. `servers` is `MODE URL`: the mode is sequence or durable."""
    mode, url = servers.split(" ")

    def build() -> tuple[Source[Any, Any], Sink[Any]]:
        durable = "job" if mode == "durable" else None
        source = NatsSource(url, "IN", durable=durable, ack_wait_s=10, deserialization_schema=SimpleStringSchema())
        return source, NatsSink(url, "out", SimpleStringSchema(), message_id=lambda line: line)

    run_job(build, folder, target, interval, parallelism)


def call(url: str, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What a function of a JetStream context returns."""
    import nats

    async def run() -> Any:
        connection = await nats.connect(url, allow_reconnect=False)
        try:
            return await asyncio.wait_for(work(connection.jetstream()), 30)
        finally:
            await connection.close()

    return asyncio.run(run())


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
    mode: str = "sequence",
) -> str:
    """Run one job with NATS."""
    chance = random.Random(seed)
    server: NatsServer
    with tempfile.TemporaryDirectory(prefix="penstock-nats-") as name, nats_server() as server:

        async def create(context: Any) -> None:
            for stream in ("IN", "OUT"):
                await context.add_stream(name=stream, subjects=[stream.lower()], duplicate_window=600)

        def publish(numbers: range) -> None:
            async def work(context: Any) -> None:
                for n in numbers:
                    await context.publish("in", str(n).encode(), headers={"Nats-Msg-Id": str(n)})

            call(server.url, work)

        position = 0

        def read() -> list[str]:
            nonlocal position

            async def work(context: Any) -> list[str]:
                last = (await context.stream_info("OUT")).state.last_seq
                return [
                    (await context.get_msg("OUT", seq, direct=False)).data.decode()
                    for seq in range(position + 1, min(last, position + 2_000) + 1)
                ]

            lines: list[str] = call(server.url, work)
            position += len(lines)
            return lines

        def count(records: int) -> Mapping[int, int] | None:
            return dict.fromkeys(range(records), 1) if mode == "sequence" else None

        call(server.url, create)
        broker = Broker(server, f"{mode} {server.url}", chance, server.kill)
        feeder, lines = Feeder(publish, rate), Lines(read)
        how = (chance, kills, target, pause_s, victims)
        outcome = run_kills(NatsJob, broker, feeder, lines, count, Path(name), how)
        if mode == "sequence":
            assert len(set(lines.lines)) == len(lines.lines), "results are stored more than once"
        return f"{mode}: {outcome}"


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run_pipeline(**json.loads(sys.argv[1]))
    else:
        run_with_mode(run, ("sequence", "durable"))
