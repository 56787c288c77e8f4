"""`OpensearchServer`: OpenSearch as one embedded node on a loopback port, without security.

The server's jars are downloaded once, as Kafka's are (`penstock.cli.trial.servers`). It is started by a small Java
program, which is compiled once: that needs a JDK of Java 17 or 21. It is up after some ten seconds and takes about
400 MB of memory.
"""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError, OperationError
from penstock.cli.trial.servers import ServerProcess, cache, installed, java

VERSION: Final = "2.19.6"
_NAME: Final = f"opensearch-{VERSION}"
_JARS: Final = (
    f"org.opensearch:opensearch:{VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
    f"org.opensearch.plugin:analysis-common:{VERSION}",
    f"org.opensearch.plugin:mapper-extras-client:{VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_OPTIONS: Final = (
    "-Xms512m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Dlog4j2.disable.jmx=true",
    "-Dopensearch.set.netty.runtime.available.processors=false",
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


def is_installed() -> bool:
    """Return whether the jars are in the cache."""
    return (cache() / _NAME).exists()


def installation() -> Path:
    """Return a directory with the jars in `jars` and the compiled program. Downloads about 50 MB once.

    Raises:
        PenstockError: without a Java that has a compiler, or if the jars cannot be downloaded.
    """
    if is_installed():
        return cache() / _NAME
    program = java("OpenSearch")
    compiler = Path(program).with_name("javac")
    if not compiler.exists():
        raise MissingPathError(
            f"OpenSearch is started by a small Java program, and there is no javac beside {program}: install a JDK "
            "of Java 17 or 21, such as `apt-get install openjdk-17-jdk-headless`"
        )

    def compile_main(directory: Path) -> None:
        (directory / "Main.java").write_text(_MAIN)
        command = [str(compiler), "-nowarn", "-d", str(directory), "-cp", f"{directory}/jars/*"]
        done = subprocess.run([*command, str(directory / "Main.java")], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OperationError(f"the program that starts OpenSearch cannot be compiled: {done.stderr[-3000:]}")

    return installed(_NAME, _JARS, compile_main)


class OpensearchServer(ServerProcess):
    """A node without security. Its documents survive `kill -9`.

    Args:
        directory: for its data and its log.
        port: the port to listen on.
        transport_port: the port that the node opens for other nodes.

    Raises:
        PenstockError: if OpenSearch cannot be downloaded, or there is no JDK.
    """

    def __init__(self, directory: Path, port: int, transport_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "log"
        home = installation()
        (directory / "config").mkdir(parents=True, exist_ok=True)
        arguments = [str(port), str(directory), str(transport_port)]
        self._command = [java("OpenSearch"), *_OPTIONS, "-cp", f"{home}:{home}/jars/*", "Main", *arguments]

    def launch(self) -> None:
        """Start the process without waiting."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Return whether the node answers and has its indexes."""
        path = "/_cluster/health?wait_for_status=yellow&timeout=5s"
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=30):
                return True
        except OSError:
            return False
