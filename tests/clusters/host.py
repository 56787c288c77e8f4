"""The first process of a host: makes the host's namespaces what they have to be, and lives as long as the host does.

It is started in new namespaces of network, name and mounts. It gives the host its name, its address, a device on which
the `switch` finds its packets, a boot id and a /tmp of its own. When its input ends, which it does when the process
that made the host is gone, it kills all processes of the host; with the last of them the namespaces are gone, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

from tests.clusters.switch import DEVICE

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def command(*words: str | Path) -> None:
    """Run a command of the system, which must succeed."""
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def set_up(name: str, address: str, folder: Path, seen: list[str], mtu: int) -> None:
    """Everything but the switch. `folder`: of this host alone; `seen`: paths that it has in common with all others."""
    command("mount", "--make-rprivate", "/")
    socket.sethostname(name)
    command("ip", "link", "set", "lo", "up")
    command("ip", "tuntap", "add", "dev", DEVICE, "mode", "tun")
    command("ip", "address", "add", f"{address}/24", "dev", DEVICE)
    command("ip", "link", "set", DEVICE, "up", "mtu", str(mtu))
    command("mount", "--bind", folder.parent / "hosts", "/etc/hosts")
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    command("mount", "--bind", folder / "boot_id", BOOT_ID)
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    for path in map(Path, seen):
        if path.is_relative_to("/tmp"):
            (temporary / path.relative_to("/tmp")).mkdir(parents=True)
            command("mount", "--rbind", path, temporary / path.relative_to("/tmp"))
    command("mount", "--rbind", temporary, "/tmp")


def network_of(process: int | str) -> str:
    """Which network a process is in; empty when it is gone."""
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return ""


def processes_in(network: str) -> list[int]:
    """All processes of a host."""
    numbers = (path.name for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [int(number) for number in numbers if network_of(number) == network]


def main() -> None:
    """Arguments: the settings, as JSON."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that made the host
    set_up(settings["name"], settings["address"], Path(settings["folder"]), settings["seen"], settings["mtu"])
    print("ready", flush=True)
    sys.stdin.buffer.read()
    while others := [process for process in processes_in(network_of("self")) if process != os.getpid()]:
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
