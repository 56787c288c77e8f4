"""Finds the Java that Spark needs, or reports exactly which package to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.base.errors import PenstockError

JAVA_VERSION_MIN = 17
SPARK = "Spark"

#: Install locations of Java packages: Debian, Fedora and similar; macOS itself; Homebrew on both Mac architectures.
INSTALL_PATTERNS = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
)

_VERSION = re.compile(r'version\s*=?\s*"(?:1\.)?(\d+)', re.IGNORECASE)


class JavaNotFoundError(PenstockError, RuntimeError):
    """This machine has no Java that Spark can run on."""


def find_java(environ: Mapping[str, str], patterns: Sequence[str] = INSTALL_PATTERNS, needed_by: str = SPARK) -> Path:
    """Return the home of a Java for Spark: JAVA_HOME, else the one on PATH, else the oldest suitable one.

    Args:
        environ: the environment variables.
        patterns: where Java may be installed.
        needed_by: the software that needs Java, for the error.

    Raises:
        JavaNotFoundError: if none is found; the error says which package to install.
    """
    too_old: list[str] = []
    for home in _candidates(environ, patterns):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        if version is not None:
            too_old.append(f"Java {version} in {home}")
    raise JavaNotFoundError(_what_to_install(too_old, needed_by))


def java_version(home: Path) -> int | None:
    """Return the feature version (17, 21, ...) of the Java installed in `home`; None if it does not work."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _asked(executable)
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _asked(executable: Path) -> str:
    try:
        return subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _candidates(environ: Mapping[str, str], patterns: Sequence[str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home)
    if executable := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(executable).resolve().parent.parent
    installed = {home.resolve() for pattern in patterns for home in Path("/").glob(pattern.lstrip("/"))}
    yield from sorted(installed, key=lambda home: (java_version(home) or 0, home))


def _what_to_install(too_old: Sequence[str], needed_by: str) -> str:
    finding = f"only {' and '.join(too_old)} was found" if too_old else "none was found"
    local = ". Without Java, a job runs in this process with the setting execution.target: local"
    return (
        f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer, but {finding} in JAVA_HOME, on PATH or in /usr/lib/jvm. "
        "Install it: `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), `dnf install "
        "java-17-openjdk-headless` (Fedora, Red Hat) or `brew install openjdk@17` (macOS)"
    ) + (local if needed_by == SPARK else "")
