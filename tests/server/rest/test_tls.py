"""TLS: the server with a certificate of this test, and the commands that ask it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.server.rest.rig import JOB, Client, Handle, a_view, serving

from penstock.cli.main import main

PASSWORD = "swordfish"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a certificate by it for this host with an encrypted key, and one by it for another host."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    for name, host in (("server", "127.0.0.1"), ("elsewhere", "elsewhere.example")):
        made = authority.issue_cert(host)
        for part in made.cert_chain_pems:
            part.write_to_path(folder / f"{name}.pem", append=True)
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        encrypted = BestAvailableEncryption(PASSWORD.encode())
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted)
        (folder / f"{name}.key").write_bytes(text)
    return folder


def options(folder: Path, name: str) -> dict[str, str]:
    return {
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.certificate": str(folder / f"{name}.pem"),
        "security.ssl.rest.key": str(folder / f"{name}.key"),
        "security.ssl.rest.key-password": PASSWORD,
    }


@pytest.fixture
def server(folder: Path) -> Iterator[Client]:
    with serving(Handle(a_view()), configuration=options(folder, "server")) as client:
        yield client


def listed(server: Client, code: int, **settings: str) -> str:
    """What `penstock list` says."""
    known = {"security.ssl.rest.enabled": "true", **settings}
    words = [word for key, value in known.items() for word in ("-D", f"{key}={value}")]
    result = CliRunner().invoke(main, ["list", "-m", f"127.0.0.1:{server.context.port}", *words])
    assert result.exit_code == code, result.output
    return result.output


def test_a_command_that_trusts_the_certificate_is_answered_over_tls(server: Client, folder: Path) -> None:
    assert JOB in listed(server, 0, **{"security.ssl.rest.certificate": str(folder / "authority.pem")})
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    with (
        socket.create_connection(("127.0.0.1", server.context.port), 60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        assert secured.version() in ("TLSv1.2", "TLSv1.3")


def test_without_the_certificate_or_with_another_one_it_refuses(server: Client, folder: Path) -> None:
    for trusted in ({}, {"security.ssl.rest.certificate": str(folder / "stranger.pem")}):
        said = listed(server, 1, **trusted)
        assert "is not trusted (unable to get local issuer certificate)" in said
        assert "-D security.ssl.rest.certificate=FILE" in said


def test_a_certificate_of_another_host_is_refused(folder: Path) -> None:
    with serving(Handle(a_view()), configuration=options(folder, "elsewhere")) as server:
        said = listed(server, 1, **{"security.ssl.rest.certificate": str(folder / "authority.pem")})
        assert "is not trusted (IP address mismatch, certificate is not valid for '127.0.0.1')" in said


def test_who_speaks_no_tls_gets_no_answer(server: Client) -> None:
    said = listed(server, 1, **{"security.ssl.rest.enabled": "false"})
    assert JOB not in said
    assert "nothing answers" in said
