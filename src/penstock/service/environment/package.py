"""Builds the archive, and describes its contents and use."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.service.environment.archive import check_output, write
from penstock.service.environment.distributions import chosen, installed, list_distribution_files
from penstock.service.environment.interpreter import LAUNCHER, LINKS, described, interpreter
from penstock.service.environment.submitting import as_shown, submit_commands

MIB = 1 << 20


@dataclass(frozen=True)
class Package:
    """A finished archive. Sizes are in bytes; `packages` are names with versions."""

    path: Path
    size_bytes: int
    unpacked_bytes: int
    packages: tuple[str, ...]

    def report(self) -> Iterator[str]:
        """Yield lines that describe the archive and the commands with which Spark sends it to executors."""
        sizes = f"{self.size_bytes / MIB:,.1f} MiB, {self.unpacked_bytes / MIB:,.1f} MiB unpacked"
        yield f"{self.path}: {sizes}, {described()}"
        yield f"{len(self.packages)} packages: {', '.join(self.packages)}"
        yield "Without PySpark, because Spark gives executors its own."
        commands = submit_commands(str(self.path), "PROGRAM.py", sys.executable)
        for manager, words in commands.items():
            yield f"\n{manager}:"
            yield from (f"    {line}" for line in as_shown(words))


def package(output: Path, only: Sequence[str], exclude: Sequence[str], force: bool) -> Package:
    """Build an archive of this process's Python and packages.

    Args:
        output: the file to write.
        only: include only these distributions, Penstock, and their dependencies; all distributions if empty.
        exclude: distributions to leave out.
        force: whether to replace an existing file.

    Raises:
        PenstockError: if the archive cannot be built; the message says what to do.
    """
    check_output(output, force)
    distributions = chosen(only, exclude, installed())
    files = itertools.chain.from_iterable(
        list_distribution_files(name, distribution) for name, distribution in distributions.items()
    )
    unpacked = write(output, [*interpreter(), *files], LINKS, {"bin/python": LAUNCHER})
    names = tuple(f"{name} {distribution.version}" for name, distribution in distributions.items())
    return Package(output, output.stat().st_size, unpacked, names)
