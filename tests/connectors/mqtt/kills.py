"""MQTT → keyed state → MQTT, through SIGKILLs, restarts and suspensions at random moments.

`python -m tests.connectors.mqtt.kills --kills 20` publishes numbers at a rate. A job numbers the
records of each key, and writes them to another topic. Again and again a worker or the driver gets SIGKILL, or the
server is suspended for a while, as if the link were broken, or stopped and started: Mosquitto writes sessions when it
is stopped, and every half an hour. The subscription is not shared, because Mosquitto 2.0.11 forgets shared ones when it
stops. In the end no record may be missing. The seed that it prints makes the choice of the victims and the pauses the
same again.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.kafka.kills import command
from tests.connectors.rabbitmq.kills import VICTIMS, Broker, Feeder, Lines, QueueJob, run_kills
from tests.connectors.rabbitmq.pipeline import run_job
from tests.servers.queues import MosquittoServer, mosquitto_server

from penstock.common import SimpleStringSchema
from penstock.datastream.connectors import Sink, Source
from penstock.datastream.connectors.mqtt import MqttSink, MqttSource


class MqttJob(QueueJob):
    """The job and its drivers, one after another."""

    program = "tests.connectors.mqtt.kills"


def run_pipeline(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program of the job."""

    def build() -> tuple[Source[Any, Any], Sink[Any]]:
        source = MqttSource(servers, "in", client_id="job", deserialization_schema=SimpleStringSchema())
        return source, MqttSink(servers, "out", SimpleStringSchema())

    run_job(build, folder, target, interval, parallelism)


class Client:
    """A client of paho-mqtt, whose session stays when it connects anew."""

    def __init__(self, port: int, name: str) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self.lines: deque[str] = deque()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 86_400
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self.client.on_message = lambda _, __, message: self.lines.append(message.payload.decode())
        self.client.on_connect = lambda client, *_: client.subscribe("out", 1) if name == "reader" else None
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        self.client.loop_start()

    def publish(self, numbers: range) -> None:
        for info in [self.client.publish("in", str(n), 1) for n in numbers]:
            info.wait_for_publish(120)
            assert info.is_published()

    def take(self) -> list[str]:
        return [self.lines.popleft() for _ in range(len(self.lines))]


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job with MQTT."""
    chance = random.Random(seed)
    server: MosquittoServer
    with tempfile.TemporaryDirectory(prefix="penstock-mqtt-") as name, mosquitto_server() as server:
        reader, publisher = Client(server.port, "reader"), Client(server.port, "publisher")
        # the session of the job has to be there before the first message
        session = Client(server.port, "job-0")
        session.client.subscribe("in", 1)
        session.client.publish("other", b"", 1).wait_for_publish(30)
        session.client.disconnect()
        session.client.loop_stop()
        broker = Broker(server, f"mqtt://127.0.0.1:{server.port}", chance, server.stop)
        feeder, lines = Feeder(publisher.publish, rate), Lines(reader.take)
        how = (chance, kills, target, pause_s, victims)
        return run_kills(MqttJob, broker, feeder, lines, lambda records: None, Path(name), how)


main = command(run, 20, 300.0, (0.5, 4.0), "Kill workers and drivers, stop the server, and look at what comes out.")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run_pipeline(**json.loads(sys.argv[1]))
    else:
        main()
