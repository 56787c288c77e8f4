"""What a worker tells its peers about the ways to it, and which of them a peer takes."""

from pathlib import Path

import pytest

from penstock.base.errors import ProtocolError
from penstock.drivers.spark.sockets import data_address, host_identity, is_socket, select_endpoint

TCP = "tcp://10.0.0.1:4000"
HOST, PATH = "a-host", "/tmp/a b:c/data"


@pytest.mark.parametrize(
    ("own_host", "is_there", "taken"),
    [(HOST, True, f"ipc://{PATH}"), (HOST, False, TCP), ("another", True, TCP), (None, True, TCP)],
)
def test_unix_socket_is_taken_on_the_same_host_where_it_is_reachable(
    own_host: str | None, is_there: bool, taken: str
) -> None:
    """A peer on another host, or one that cannot reach the socket, takes tcp. Paths may hold spaces and colons."""
    asked: list[str] = []

    def is_reachable(path: str) -> bool:
        asked.append(path)
        return is_there

    assert select_endpoint("w", data_address(TCP, HOST, PATH), own_host, is_reachable) == taken
    assert asked == ([PATH] if own_host == HOST else [])


@pytest.mark.parametrize(("host", "path"), [(None, PATH), (HOST, None), (None, None)])
def test_address_is_the_tcp_address_where_there_is_no_unix_socket(host: str | None, path: str | None) -> None:
    address = data_address(TCP, host, path)
    assert address == TCP
    assert select_endpoint("w", address, HOST, lambda _: True) == TCP


@pytest.mark.parametrize("address", ["", "ipc:///tmp/x", f"ipc:{HOST}:{PATH}", f" {TCP}", "inproc://x"])
def test_address_must_begin_with_tcp(address: str) -> None:
    """The error names the peer and the address."""
    with pytest.raises(ProtocolError, match=f"worker 'w' is not a tcp address: {address!r}"):
        select_endpoint("w", address, HOST, lambda _: True)


@pytest.mark.parametrize(
    "local",
    [
        "",
        " ",
        "ipc:",
        f"ipc:{HOST}",
        f"ipc:{HOST}:",
        f"ipc::{PATH}",
        f"tcp:{HOST}:{PATH}",
        f"ipc:{HOST}:relative",
        f"ipc:{HOST}:@abstract",
        f"ipc:{HOST}:/a\0b",
        f"ipc:{HOST}:/{'x' * 107}",
        f" ipc:{HOST}:{PATH}",
    ],
)
@pytest.mark.parametrize("own_host", [HOST, None])
def test_malformed_unix_socket(local: str, own_host: str | None) -> None:
    """It is an error that names the peer, on every host."""
    with pytest.raises(ProtocolError, match="worker 'w' names no Unix socket after the space"):
        select_endpoint("w", f"{TCP} {local}", own_host, lambda _: True)


def test_host_without_identity(tmp_path: Path) -> None:
    """A system that does not tell, or tells nothing, has no identity."""
    (tmp_path / "empty").touch()
    (tmp_path / "boot_id").write_text("1a6e\n")
    assert host_identity(tmp_path / "gone") is None
    assert host_identity(tmp_path / "empty") is None
    assert host_identity(tmp_path / "boot_id") == "1a6e"


def test_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_socket(str(tmp_path / "file"))
    assert not is_socket(str(tmp_path / "gone"))
