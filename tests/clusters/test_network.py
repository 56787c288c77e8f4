"""Hosts of namespaces are apart, and their links do what they are told (E8)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clusters.network import Host, Network, missing
from tests.clusters.switch import Link
from tests.spec.kill_executor import wait_for

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

CUT = Link(cut=True)
ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 4000))
print("listens", flush=True)
while True:
    server.sendto(*server.recvfrom(100))
"""
ASK = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(0.2)
begun = time.monotonic()
client.sendto(b"?", (sys.argv[1], 4000))
try:
    client.recv(100)
    print(time.monotonic() - begun)
except TimeoutError:
    print("silence")
"""
#: Says nothing, and counts what it gets.
SEND = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])):
    client.sendto(b"marked in clear", (sys.argv[1], 4001))
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with Network(["one", "other"], [tmp_path_factory.getbasetemp()]) as network:
        server = network["other"].python(ECHO, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"listens\n"
        yield network
    server.stdout.close()
    assert server.wait(10) != 0, "it ends with its host"


@pytest.fixture(autouse=True)
def whole(network: Network) -> None:
    network.set_both("one", "other", Link())


def said(host: Host, source: str, *arguments: str) -> str:
    with host.python(source, *arguments, stdout=subprocess.PIPE, text=True) as process:
        return str(process.communicate()[0]).strip()


def test_hosts_have_a_name_an_address_and_files_of_their_own(network: Network, tmp_path: Path) -> None:
    show = (
        "import socket, pathlib, sys; "
        "print(socket.gethostname(), socket.gethostbyname(socket.gethostname()), "
        "pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip(), "
        "pathlib.Path('/tmp/mine').write_text('x') and sorted(pathlib.Path('/tmp').glob('mi*')) and 'wrote', "
        "pathlib.Path(sys.argv[1]).exists())"
    )
    one, other = (said(network[name], show, str(tmp_path)).split() for name in ("one", "other"))
    assert one[:2] == ["one", network["one"].address]
    assert other[:2] == ["other", network["other"].address]
    assert one[2] != other[2]
    assert one[3:] == other[3:] == ["wrote", "True"]
    assert not Path("/tmp/mine").exists()


def test_a_link_delays(network: Network) -> None:
    network.set("one", "other", Link(delay_ms=50))
    assert float(said(network["one"], ASK, "other")) >= 0.05


@pytest.mark.parametrize(("source", "target"), [("one", "other"), ("other", "one")])
def test_a_link_is_cut_one_way(network: Network, source: str, target: str) -> None:
    """What is asked, or what is answered, does not come through."""
    network.set(source, target, CUT)
    assert said(network["one"], ASK, "other") == "silence"
    network.set(source, target, Link())
    assert said(network["one"], ASK, "other") != "silence"


def test_a_link_loses_its_share(network: Network) -> None:
    network.set("one", "other", Link(loss=0.5))
    with network["other"].recorded() as packets:
        said(network["one"], SEND, "other", "400")
        wait_for(lambda: sum(b"marked in clear" in packet for packet in packets) > 100, "some came through")
    assert sum(b"marked in clear" in packet for packet in packets) < 300


def test_who_listens_on_a_link_hears_what_is_said_in_clear(network: Network) -> None:
    with network["one"].recorded() as packets:
        said(network["one"], SEND, "other", "1")
        wait_for(lambda: any(b"marked in clear" in packet for packet in packets), "the packet")
