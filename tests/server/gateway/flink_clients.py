"""Flink's own clients of SQL gateways: the JDBC driver with a program in Java, and the SQL client with files.

`JdbcProgram.java` runs the steps of `jdbc_steps.txt`. The SQL client runs the files of `scripts`. What both show is
text, in which ids, times and colours are replaced, so that runs against Flink and Penstock can be compared by line.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.cli.trial.servers import installed, java

HERE: Final = Path(__file__).parent
STEPS: Final = HERE / "jdbc_steps.txt"
SCRIPTS: Final = sorted((HERE / "scripts").glob("*.sql"))
VERSION: Final = "2.3.0"
SECONDS: Final = 170
ZONE: Final = "Asia/Kolkata"

#: What differs between two runs: the text, and what stands for it.
_VARIES: Final = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"\b[0-9a-f]{32}\b", "<job>"),
    (r"\([0-9.]+ seconds\)", "(<n> seconds)"),
    (r"Command history file path: .*", "Command history file path: <path>"),
    (r"(?m)^.*org\.jline\.utils\.Log logr\n.*\n", ""),
    (r"(?m)^(WARNING|SLF4J).*\n", ""),
)


def find_flink() -> Path | None:
    """The folder of a Flink, with its jars in `lib` and `opt`: FLINK_HOME, or the one of the test servers."""
    kept = Path.home() / ".cache" / "test-servers" / "flink"
    for home in (os.environ.get("FLINK_HOME"), *map(str, kept.glob("venv/lib/python3*/site-packages/pyflink"))):
        if home and list(Path(home).glob(f"opt/flink-sql-client-{VERSION}.jar")):
            return Path(home)
    return None


def find_gateway_jars(flink: Path) -> list[Path]:
    """The jars of Flink's gateway, of which its SQL client has the calls."""
    kept = Path.home() / ".cache" / "test-servers" / "flink" / "opt"
    return [*flink.glob("opt/flink-sql-gateway-*.jar"), *kept.glob("flink-sql-gateway-*.jar")][:1]


def normalize(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run."""
    for pattern, stand_in in _VARIES:
        text = re.sub(pattern, stand_in, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def run_jdbc(port: int, headers: str | None = None, steps: Path = STEPS) -> list[str]:
    """Run the program of JDBC against a gateway, and return what it prints."""
    driver = installed(f"flink-sql-jdbc-{VERSION}", [f"org.apache.flink:flink-sql-jdbc-driver-bundle:{VERSION}"])
    spark = find_spec("pyspark")
    assert spark is not None
    # The compiler of Spark needs no development kit.
    of_spark = Path(str(spark.origin)).parent / "jars"
    jars = [*of_spark.glob("janino-*.jar"), *of_spark.glob("commons-compiler-*.jar"), *(driver / "jars").glob("*.jar")]
    compiler = ["org.codehaus.janino.JavaSourceClassLoader", "-sourcepath", str(HERE), "JdbcProgram"]
    url = f"jdbc:flink://127.0.0.1:{port}?table.local-time-zone={ZONE}"
    command = [java(), "-Duser.timezone=UTC", "-cp", ":".join(map(str, jars)), *compiler, url, str(steps)]
    return normalize(_run(command, {} if headers is None else {"FLINK_REST_CLIENT_HEADERS": headers}))


def run_sql_client(flink: Path, port: int, script: Path, directory: Path, headers: str | None = None) -> list[str]:
    """Run a file with the SQL client, which is connected to a gateway, and return what it shows."""
    (directory / "plugins").mkdir(exist_ok=True)
    (directory / "config.yaml").write_text("rest.address: 127.0.0.1\n")
    environment = {
        "FLINK_CONF_DIR": str(directory),
        "FLINK_LIB_DIR": str(flink / "lib"),
        "FLINK_OPT_DIR": str(flink / "opt"),
        "FLINK_PLUGINS_DIR": str(directory / "plugins"),
    }
    if headers is not None:
        environment["FLINK_REST_CLIENT_HEADERS"] = headers
    jars = [*find_gateway_jars(flink), *flink.glob("opt/flink-sql-client-*.jar"), *flink.glob("lib/*.jar")]
    opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang")]
    command = [
        java(),
        "-Xmx300m",
        "-Duser.timezone=UTC",
        *opens,
        "-Dlog4j2.level=ERROR",
        "-cp",
        ":".join(map(str, jars)),
    ]
    command += ["org.apache.flink.table.client.SqlClient", "gateway", "--endpoint", f"127.0.0.1:{port}"]
    command += ["-hist", str(directory / "history"), "-f", str(script)]
    return normalize(_run(command, environment))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
    )
    return done.stdout


def without_causes(lines: Sequence[str]) -> list[str]:
    """The lines, with the texts of errors left out: Penstock's name the place and the remedy."""
    kept = []
    is_error = False
    for line in lines:
        if line.startswith("cause "):
            kept.append("cause")
        elif is_error and not line.startswith(("Flink SQL>", "Shutting down")):
            continue
        else:
            kept.append(line)
            is_error = "[ERROR] Could not execute SQL statement. Reason:" in line
    return kept
