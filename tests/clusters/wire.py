"""What the wire between two hosts can do: `python -m tests.clusters.wire --delay 5 --loss 0.001`."""

from __future__ import annotations

import subprocess

import click
from tests.clusters.network import MTU, Network
from tests.clusters.switch import Link

SERVER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 4000))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(1 << 20):
        if len(data) == 1:
            connection.sendall(data)
"""
CLIENT = """
import socket, statistics, sys, time
connection = socket.create_connection((sys.argv[1], 4000))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
trips = []
for _ in range(300):
    begun = time.perf_counter()
    connection.sendall(b"x")
    connection.recv(1)
    trips.append((time.perf_counter() - begun) * 1000)
trips.sort()
print(f"round trip {statistics.median(trips):.2f} ms (p50), {trips[-3]:.2f} ms (p99)", flush=True)
data, sent, begun = bytes(1 << 16), 0, time.perf_counter()
while (took := time.perf_counter() - begun) < float(sys.argv[2]):
    connection.sendall(data)
    sent += len(data)
print(f"throughput {sent / took / 1e6:.1f} MB/s")
"""


@click.command()
@click.option("--delay", default=0.0, show_default=True, help="How long (ms) a packet takes, one way.")
@click.option("--loss", default=0.0, show_default=True, help="The share of packets that are lost.")
@click.option("--mtu", default=MTU, show_default=True, help="The largest packet, in bytes.")
@click.option("--seconds", default=5.0, show_default=True, help="How long to send.")
def main(delay: float, loss: float, mtu: int, seconds: float) -> None:
    """Measure the round trip and the throughput of TCP between two hosts."""
    with Network(["one", "other"], mtu=mtu) as network:
        if delay or loss:
            network.set_both("one", "other", Link(delay, loss))
        server = network["other"].python(SERVER, stdout=subprocess.PIPE)
        assert server.stdout is not None
        server.stdout.readline()
        client = network["one"].python(CLIENT, "other", str(seconds), stdout=subprocess.PIPE, text=True)
        print(client.communicate()[0], end="")


if __name__ == "__main__":
    main()
