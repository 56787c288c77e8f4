"""A real OpenSearch: its server's jars as one embedded node without security, on a port of loopback.

It is up after some ten seconds and takes about 400 MB of memory. It needs a Java 17 or 21 with its compiler.
"""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.servers.ports import free_port
from tests.servers.waiting import await_true

from penstock.base.errors import OperationError
from penstock.cli.trial.servers import installed, java

VERSION: Final = "2.19.6"
_JARS: Final = (
    f"org.opensearch:opensearch:{VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
    f"org.opensearch.plugin:analysis-common:{VERSION}",
    f"org.opensearch.plugin:mapper-extras-client:{VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_MAIN: Final = """
import java.util.*;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.*;

public class Main extends Node {
    Main(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "test"), List.of(
            org.opensearch.transport.Netty4Plugin.class, org.opensearch.index.mapper.MapperExtrasPlugin.class,
            org.opensearch.analysis.common.CommonAnalysisPlugin.class), true);
    }
    public static void main(String[] a) throws Exception {
        Settings.Builder settings = Settings.builder().put("path.home", a[1]).put("path.data", a[1] + "/data")
            .put("cluster.name", "test").put("node.name", "test").put("network.host", "127.0.0.1")
            .put("http.port", a[0]).put("transport.port", a[2]).put("http.type", "netty4")
            .put("transport.type", "netty4").put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false);
        new Main(settings.build()).start();
        Thread.currentThread().join();
    }
}
"""


def installation() -> Path:
    """The directory with the server, fetched once into the user's cache.

    Raises:
        PenstockError: without a Java that has a compiler, or if the jars cannot be fetched.
    """
    compiler = Path(java()).with_name("javac")
    if not compiler.exists():
        raise OperationError("OpenSearch is started by a small Java program, and there is no javac")

    def compile_main(directory: Path) -> None:
        (directory / "Main.java").write_text(_MAIN)
        command = [str(compiler), "-nowarn", "-d", str(directory), "-cp", f"{directory}/jars/*"]
        subprocess.run([*command, str(directory / "Main.java")], check=True, capture_output=True)

    return installed(f"opensearch-{VERSION}", _JARS, compile_main)


class Opensearch:
    """A server that can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.port, self._transport_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        home = installation()
        (self._directory / "config").mkdir(parents=True, exist_ok=True)
        options = ["-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.disable.jmx=true"]
        options.append("-Dopensearch.set.netty.runtime.available.processors=false")
        arguments = [str(self.port), str(self._directory), str(self._transport_port)]
        command = [java(), *options, "-cp", f"{home}:{home}/jars/*", "Main", *arguments]
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def await_up(self) -> None:
        await_true(self.is_up, f"OpenSearch does not answer: {(self._directory / 'log').read_text()[-3000:]}")

    def is_up(self) -> bool:
        try:
            self.call("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def call(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    def documents(self, index: str) -> dict[str, str]:
        """The documents of an index, as JSON by their ids."""
        self.call("POST", f"/{index}/_refresh")
        documents: dict[str, str] = {}
        after: list[Any] = []
        while True:
            query = {"size": 5_000, "sort": ["_doc"], **({"search_after": after} if after else {})}
            request = urllib.request.Request(
                f"{self.url}/{index}/_search", json.dumps(query).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                hits = json.loads(response.read(), parse_float=str)["hits"]["hits"]
            if not hits:
                return documents
            documents |= {hit["_id"]: json.dumps(hit["_source"]) for hit in hits}
            after = hits[-1]["sort"]


@contextmanager
def opensearch_server(directory: Path) -> Iterator[Opensearch]:
    server = Opensearch(directory)
    server.start()
    try:
        server.await_up()
        yield server
    finally:
        server.kill()
