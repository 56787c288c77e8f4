"""Hosts that are really apart, on one machine: `Network` makes them of Linux namespaces, with links that can fail.

Each host has its own network, name, boot id and /tmp, so nothing of it can be reached but over its address. What the
hosts share is a directory, as over NFS, and the machine's clock. A process of its own, the `switch`, carries all
packets between them, and makes delay, loss and cuts, in each direction for itself. Process ids are those of the
machine, so that a test can stop and kill what runs in a host.

It needs root and Linux. When the process that made a network ends, however it ends, its hosts end.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.clusters.host import network_of, processes_in
from tests.clusters.switch import CLONE_NEWNET, DEVICE, PACKET_BYTES_MAX, Link

ROOT = Path(__file__).parents[2]
SUBNET = "10.77.0"
MTU = 1_500
ALL_PROTOCOLS = 0x0003
_LIBC = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """What this machine lacks for hosts of namespaces; None if nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "hosts are namespaces of Linux, and only root may make them"
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"hosts are namespaces, and the command {tool} to make them is not there"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"hosts need /dev/net/tun for their packets: {error}"
    if subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False).returncode:
        return "hosts are namespaces, which this machine does not allow"
    return None


class Host:
    """One host: start processes in it, and find them.

    Attributes:
        name: its host name, which all hosts can resolve.
        address: its one address beside loopback.
    """

    def __init__(self, name: str, address: str, folder: Path, seen: Sequence[str], mtu: int) -> None:
        self.name = name
        self.address = address
        (folder / name).mkdir()
        settings = {"name": name, "address": address, "folder": str(folder / name), "seen": list(seen), "mtu": mtu}
        self._first = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", sys.executable, "-m", "tests.clusters.host", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._first.stdout is not None
        if self._first.stdout.readline() != b"ready\n":
            raise OSError(f"host {name} could not be made")
        self.process = self._first.pid
        self._network = network_of(self.process)
        self._started: list[subprocess.Popen[Any]] = []

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """A process in this host, in the repository's directory; its process id is the one that is returned."""
        entering = ["nsenter", "--target", str(self.process), "--net", "--uts", "--mount", "env", f"--chdir={ROOT}"]
        more = {"TMPDIR": "/tmp", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", **(environment or {})}
        self._started.append(subprocess.Popen([*entering, *command], env={**os.environ, **more}, **options))
        return self._started[-1]

    def python(self, source: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """A Python program in this host."""
        return self.start([sys.executable, "-c", source, *arguments], **options)

    def find(self, words: str) -> list[int]:
        """The processes of this host whose command line has these words."""
        found = []
        for process in processes_in(self._network):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in line:
                    found.append(process)
        return sorted(found)

    def has(self, process: int) -> bool:
        """Whether a process runs in this host."""
        return network_of(process) == self._network

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[bytes]]:
        """All packets that this host sends and receives meanwhile; of each the whole, with its IP header."""
        packets: list[bytes] = []
        device = self._packet_socket()
        device.settimeout(0.1)
        stop = threading.Event()

        def record() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    packets.append(device.recv(PACKET_BYTES_MAX))

        thread = threading.Thread(target=record, daemon=True)
        thread.start()
        try:
            yield packets
        finally:
            stop.set()
            thread.join()
            device.close()

    def end(self) -> None:
        """Kill all that runs in this host, and the host."""
        for pipe in (self._first.stdin, self._first.stdout):
            if pipe is not None:
                pipe.close()
        for process in (self._first, *self._started):
            process.wait(20)

    def _packet_socket(self) -> socket.socket:
        """Made by a thread that enters the host's network and then ends: this process stays where it is."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(f"/proc/{self.process}/ns/net", "rb") as space:
                if _LIBC.setns(space.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the network of host {self.name}")
            device = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS))
            device.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
            device.bind((DEVICE, ALL_PROTOCOLS))
            made.append(device)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]


class Network:
    """Some hosts, all of which reach each other; a context, at whose end they are gone.

    Args:
        names: of the hosts.
        shared: directories that all hosts see under the same path; everything outside /tmp they see anyway.
        mtu: the largest packet, in bytes.
        seed: decides which packets are lost.
    """

    def __init__(self, names: Sequence[str], shared: Sequence[Path] = (), mtu: int = MTU, seed: int = 0) -> None:
        self._names = names
        self._seen = _outermost([ROOT, Path(sys.prefix), Path(sys.base_prefix), *shared])
        self._mtu = mtu
        self._seed = seed
        self.hosts: dict[str, Host] = {}
        self._switch: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Network:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-hosts-"))
        addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(self._names, start=1)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (self._folder / "hosts").write_text("\n".join(lines) + "\n")
        try:
            for name, address in addresses.items():
                self.hosts[name] = Host(name, address, self._folder, self._seen, self._mtu)
            places = [f"{host.address}={host.process}" for host in self.hosts.values()]
            self._switch = subprocess.Popen(
                [sys.executable, "-m", "tests.clusters.switch", str(self._seed), *places],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
            self._hear("ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.end()
        if self._switch is not None:
            self._switch.kill()
            self._switch.wait()
            for pipe in (self._switch.stdin, self._switch.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def set(self, source: str, target: str, link: Link) -> None:
        """What happens to packets from one host to another, from the moment when this returns."""
        assert self._switch is not None
        order = [self.hosts[source].address, self.hosts[target].address, dataclasses.asdict(link)]
        pipe: IO[bytes] | None = self._switch.stdin
        assert pipe is not None
        pipe.write(json.dumps(order).encode() + b"\n")
        pipe.flush()
        self._hear("done")

    def set_both(self, one: str, other: str, link: Link) -> None:
        """What happens to packets between two hosts, both ways."""
        self.set(one, other, link)
        self.set(other, one, link)

    def _hear(self, word: str) -> None:
        assert self._switch is not None
        assert self._switch.stdout is not None
        if (said := self._switch.stdout.readline().decode().strip()) != word:
            raise OSError(f"the switch between the hosts has ended: {said!r}")


def _outermost(paths: Sequence[Path]) -> list[str]:
    """The paths, each once, without those that are inside of others."""
    resolved = sorted({path.resolve() for path in paths} | {path.absolute() for path in paths})
    outer: list[Path] = []
    for path in resolved:
        if not any(path.is_relative_to(one) for one in outer):
            outer.append(path)
    return [str(path) for path in outer]


def kill(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal, if there is still somebody to get it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
