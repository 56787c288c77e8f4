"""Makes the archive, and says what it holds and how it is used."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.service.environment.archive import check_output, write
from penstock.service.environment.distributions import chosen, files_of, installed
from penstock.service.environment.interpreter import LAUNCHER, LINKS, described, interpreter
from penstock.service.environment.submitting import as_shown, submit_commands

MIB = 1 << 20


@dataclass(frozen=True)
class Package:
    """An archive that was made. Sizes are in bytes; `packages`: names with versions."""

    path: Path
    size_bytes: int
    unpacked_bytes: int
    packages: tuple[str, ...]

    def report(self) -> Iterator[str]:
        """The lines that say what it is, and how Spark gives it to executors."""
        sizes = f"{self.size_bytes / MIB:,.1f} MiB, {self.unpacked_bytes / MIB:,.1f} MiB unpacked"
        yield f"{self.path}: {sizes}, {described()}"
        yield f"{len(self.packages)} packages: {', '.join(self.packages)}"
        yield "Without PySpark, because Spark gives executors its own."
        commands = submit_commands(str(self.path), "PROGRAM.py", sys.executable)
        for manager, words in commands.items():
            yield f"\n{manager}:"
            yield from (f"    {line}" for line in as_shown(words))


def package(output: Path, only: Sequence[str], exclude: Sequence[str], force: bool) -> Package:
    """Make the archive of this process's Python and packages.

    Args:
        output: the file that is to be written.
        only: no other distributions than these, Penstock, and what they need; all if empty.
        exclude: distributions that are left out.
        force: whether a file that is there is replaced.

    Raises:
        PenstockError: if it cannot be made; the text says what to do.
    """
    check_output(output, force)
    distributions = chosen(only, exclude, installed())
    files = itertools.chain.from_iterable(files_of(name, one) for name, one in distributions.items())
    unpacked = write(output, [*interpreter(), *files], LINKS, {"bin/python": LAUNCHER})
    names = tuple(f"{name} {one.version}" for name, one in distributions.items())
    return Package(output, output.stat().st_size, unpacked, names)
