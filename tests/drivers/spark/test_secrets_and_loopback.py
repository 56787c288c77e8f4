"""A Spark that Penstock starts: what its command line shows, and where its own page listens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from contextlib import suppress
from pathlib import Path
from penstock.drivers.spark.session import obtain_spark
settings = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.a.password": "SENTINEL-1",
            "spark.a.url": "https://me:SENTINEL-2@host/x", "spark.a.plain": "shown"}
session = obtain_spark(settings, 1).session
for key in ("spark.a.password", "spark.a.url", "spark.a.plain"):
    assert session.conf.get(key) == settings[key], key
lines = ""
for path in Path("/proc").glob("[0-9]*/cmdline"):
    with suppress(OSError):  # a process that has ended meanwhile
        lines += path.read_text(errors="replace")
assert "spark.a.plain=shown" in lines
assert "SENTINEL" not in lines
port = f":{int(session.sparkContext.uiWebUrl.rpartition(':')[2]):04X}"
listening = [line.split()[1] for name in ("/proc/net/tcp", "/proc/net/tcp6") for line in open(name) if " 0A " in line]
(address,) = [one for one in listening if one.endswith(port)]
assert address.removesuffix(port) in ("0100007F", "0000000000000000FFFF00000100007F"), address
print("as it should be")
"""


def test_no_secret_is_on_the_command_line_and_the_page_is_on_loopback(tmp_path: Path) -> None:
    """S11: everybody on the host reads command lines; Spark's page has no token, so only this host reaches it."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert "as it should be" in ended.stdout, ended.stderr[-3000:]
