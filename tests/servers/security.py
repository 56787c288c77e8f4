"""What a broker needs for a listener with TLS, and users who have passwords."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.servers.kafka import KafkaCluster
from tests.servers.ports import free_port
from tests.servers.waiting import WAIT_S, await_true

from penstock.cli.trial.servers import java

USER, PASSWORD = "ann", "se=cret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")
_CLASSES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secure:
    """A listener of a broker.

    Attributes:
        kafka: the broker, by its listener without any of it.
        address: of the listener.
        ca: the file with the certificate of who has signed the broker's.
    """

    kafka: KafkaCluster
    address: str
    ca: Path

    def properties(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Those of a client, as Java has them."""
        kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{_CLASSES}.{kind} required username="{USER}" password="{password}";',
            "ssl.ca.location": str(self.ca),
        }


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A key store of a server at 127.0.0.1, and the certificate that clients trust, by the tool that Java has."""
    store, certificate = directory / "server.p12", directory / "ca.pem"
    tool = Path(java()).with_name("keytool")
    common: list[str | Path] = ["-alias", "server", "-keystore", store, "-storetype", "PKCS12", "-storepass", PASSWORD]
    made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-validity", "7"]
    names = ["-ext", "san=ip:127.0.0.1", "-ext", "bc:c=ca:true", "-ext", "ku=digitalSignature,keyCertSign"]
    for command in ([*made, *names], ["-exportcert", "-rfc", "-file", str(certificate)]):
        subprocess.run([tool, *command, *common], check=True, capture_output=True)
    return store, certificate


def secure_settings(store: Path, clients: int, controllers: int, port: int) -> dict[str, object]:
    """More of `server.properties`: a listener SECURE beside the plain one."""
    listener = "listener.name.secure"
    plain = f'{_CLASSES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    both = f"PLAINTEXT://127.0.0.1:{clients},SECURE://127.0.0.1:{port}"
    return {
        "listeners": f"{both},CONTROLLER://127.0.0.1:{controllers}",
        "advertised.listeners": both,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        f"{listener}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{listener}.plain.sasl.jaas.config": plain,
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{_CLASSES}.scram.ScramLoginModule required;",
        f"{listener}.ssl.keystore.location": store,
        f"{listener}.ssl.keystore.type": "PKCS12",
        f"{listener}.ssl.keystore.password": PASSWORD,
    }


def add_scram_user(kafka: KafkaCluster) -> None:
    """Let the user in by SCRAM; return when the broker knows."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for result in kafka.admin.alter_user_scram_credentials([change]).values():
        result.result(WAIT_S)

    def known() -> bool:
        described = cast(dict[str, Any], kafka.admin.describe_user_scram_credentials([USER]))
        try:
            return bool(described[USER].result(WAIT_S).scram_credential_infos)
        except KafkaException:
            return False

    await_true(known, "the broker does not know the user")


@contextmanager
def secure_kafka(directory: Path) -> Iterator[Secure]:
    """One broker that serves, with a listener of each kind."""
    directory.mkdir()
    store, certificate = make_certificate(directory)
    clients, controllers, port = free_port(), free_port(), free_port()
    settings = secure_settings(store, clients, controllers, port)
    kafka = KafkaCluster(directory, 1, settings, {1: (clients, controllers)})
    try:
        kafka.start()
        add_scram_user(kafka)
        yield Secure(kafka, f"127.0.0.1:{port}", certificate)
    finally:
        kafka.kill()
