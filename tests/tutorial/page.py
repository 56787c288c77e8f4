"""docs/ten-minutes.md as what there is to do, in its order: files, changes of files, commands, and pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/ten-minutes.md"
IMAGES = ROOT / "docs/images"

_THING = re.compile(
    r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|^!\[[^\]]*\]\(images/(?P<image>[\w-]+)\.png\)$", re.MULTILINE | re.DOTALL
)
#: The host, ids, times, sizes, and figures that depend on the moment; a digit up to 4 that stands alone does not.
_VARIES = re.compile(r"(?<=host=\")[^\"]*|[0-9a-f]*(?:\d[0-9a-f]*){2,}|\d[\d.]*(?= [KM]?i?B\b)|[5-9]")
#: The width of columns depends on what varies.
_WIDTH = re.compile(r"[ ─]{2,}")
#: Where the reader of the page is.
FOLDER = "/home/ann/sales"


@dataclass(frozen=True)
class File:
    """A file that the reader saves."""

    name: str
    text: str


@dataclass(frozen=True)
class Change:
    """A change that the reader makes to the program, as a diff without a head."""

    lines: tuple[str, ...]

    def apply(self, text: str) -> str:
        """The changed text; the lines of the diff must be in it exactly once."""
        before = "".join(f"{line[1:]}\n" for line in self.lines if line[:1] != "+")
        after = "".join(f"{line[1:]}\n" for line in self.lines if line[:1] != "-")
        assert text.count(before) == 1, f"not once in the program:\n{before}"
        return text.replace(before, after)


@dataclass(frozen=True)
class Command:
    """A command, and what the page says that it prints."""

    line: str
    shown: tuple[str, ...]

    def check(self, printed: str, folder: Path) -> None:
        """Each line is as the page shows it, but for what varies."""
        found = printed.replace(str(folder.resolve()), FOLDER).rstrip().splitlines()
        assert [_masked(line) for line in found] == [_masked(line) for line in self.shown], printed


@dataclass(frozen=True)
class Picture:
    """A picture of the page of the job, as it is at this point."""

    name: str


Thing: TypeAlias = File | Change | Command | Picture


def _masked(line: str) -> str:
    return _VARIES.sub("#", _WIDTH.sub("  ", line)).strip()


def things(text: str) -> Iterator[Thing]:
    """All of them, in the order of the page."""
    for found in _THING.finditer(text):
        kind, body = found["kind"], found["text"]
        if found["image"] is not None:
            yield Picture(found["image"])
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, *shown = part.splitlines()
                yield Command(line, tuple("\n".join(shown).rstrip().splitlines()))
        elif kind == "diff":
            yield Change(tuple(body.splitlines()))
        else:
            name, _, _ = body.partition("\n")
            yield File(name.removeprefix("# "), body)
