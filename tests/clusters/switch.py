"""The wire between the hosts of a `Network`: a process that carries packets from one host's device to another's.

This kernel may lack netem, so delay, loss and cuts are made here. A packet is delayed, lost or dropped by the link that
it takes, which is one for each direction. Packets of one link keep their order. The process reads its orders as lines
of JSON from stdin, answers each with a line, and ends with its input.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES_MAX = 1 << 16
#: Packets of one host that are carried before another's turn.
PACKETS_AT_A_TIME = 64
DEVICE = "eth0"


@dataclass(frozen=True)
class Link:
    """One direction between two hosts. `delay_ms`: how long a packet takes; `loss`: which share of them is lost."""

    delay_ms: float = 0.0
    loss: float = 0.0
    cut: bool = False


def attach(process: int) -> int:
    """The device of the host that this process is in, as a file descriptor: what the host sends can be read there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{process}/ns/net", "rb") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network of process {process}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return device


class Switch:
    """Carries packets between devices, each of which is known by its host's address (4 bytes)."""

    def __init__(self, devices: dict[bytes, int], seed: int) -> None:
        self._devices = devices
        self._chance = random.Random(seed)
        self._links: dict[tuple[int, int], Link] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def set(self, source: bytes, target: bytes, link: Link) -> None:
        """What happens to packets from one host to another from now on."""
        self._links[self._devices[source], self._devices[target]] = link

    def wait_s(self) -> float | None:
        """How long until a delayed packet is due; None if there is none."""
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else None

    def carry(self, device: int) -> None:
        """Take what a host sends."""
        for _ in range(PACKETS_AT_A_TIME):
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            target = self._devices.get(packet[16:20])
            if packet[0] >> 4 != 4 or target is None:
                continue
            link = self._links.get((device, target))
            if link is None:
                deliver(target, packet)
            elif not link.cut and not (link.loss and self._chance.random() < link.loss):
                self._number += 1
                heapq.heappush(self._late, (time.monotonic() + link.delay_ms / 1000, self._number, target, packet))

    def deliver_due(self) -> None:
        """Hand over the delayed packets whose time has come."""
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._late)
            deliver(target, packet)


def deliver(device: int, packet: bytes) -> None:
    """To the host behind a device; a packet for which it has no room is lost, as on any wire."""
    try:
        os.write(device, packet)
    except OSError:
        return


def main() -> None:
    """Arguments: a seed, and of each host `address=process`."""
    seed, *hosts = sys.argv[1:]
    devices: dict[bytes, int] = {}
    for host in hosts:
        address, _, process = host.partition("=")
        devices[socket.inet_aton(address)] = attach(int(process))
    os.setpriority(os.PRIO_PROCESS, 0, 0)  # a busy host must not slow the wire
    switch = Switch(devices, int(seed))
    print("ready", flush=True)
    orders, rest = sys.stdin.fileno(), b""
    while True:
        readable, _, _ = select.select([orders, *devices.values()], [], [], switch.wait_s())
        switch.deliver_due()
        for descriptor in readable:
            if descriptor != orders:
                switch.carry(descriptor)
                continue
            said = os.read(orders, 1 << 16)
            if not said:
                return
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                source, target, link = json.loads(line)
                switch.set(socket.inet_aton(source), socket.inet_aton(target), Link(**link))
                print("done", flush=True)


if __name__ == "__main__":
    main()
