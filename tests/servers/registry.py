"""A real schema registry: Apicurio's, which speaks Confluent's API, on a port of loopback."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.ports import free_port
from tests.unpacking import unpack

from penstock.cli.trial.servers import java, made_once, retrieve

VERSION = "3.0.9"  # the last that runs on Java 17
WAIT_S = 60

# The file has no POM that Ivy could follow: everything that the server needs is in it.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock.tests" module="registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def installation() -> Path:
    """The directory with the server, fetched once into the user's cache."""
    return made_once(f"registry-{VERSION}", _fill)


def _fill(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "settings.xml").write_text(_SETTINGS)
        (work / "ivy.xml").write_text(_MODULE)
        arguments: list[str | Path] = [
            "-settings",
            work / "settings.xml",
            "-ivy",
            work / "ivy.xml",
            "-cache",
            work / "ivy",
        ]
        retrieve([*arguments, "-retrieve", work / "[artifact].[ext]"])
        with tarfile.open(work / "apicurio-registry-app.tar.gz") as archive:
            unpack(archive, directory)


@contextmanager
def registry_server() -> Iterator[str]:
    """The address of Confluent's API of one that serves. It keeps what it is given in memory."""
    port = free_port()
    (jar,) = installation().glob("apicurio-registry-app-*-runner.jar")
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-jar", str(jar)]
    process = subprocess.Popen(command, cwd=jar.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        deadline = time.monotonic() + WAIT_S
        while not _serves(url):
            assert process.poll() is None, "the schema registry has ended"
            assert time.monotonic() < deadline, "the schema registry does not serve"
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def _serves(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
