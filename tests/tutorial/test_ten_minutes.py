"""docs/ten-minutes.md holds, word for word: each command does what the page says, and each picture can be taken.

The package is that of this environment; `python -m tests.tutorial` installs it with pip, as the page does.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from tests.server.page.browser import NoBrowserError, open_browser
from tests.tutorial.page import PAGE, Change, Command, Picture, things
from tests.tutorial.pictures import VIEWS, Photographer
from tests.tutorial.reader import Reader

from penstock.base.errors import MissingPathError
from penstock.server.page import files

pytestmark = pytest.mark.slow


@pytest.fixture
def photographer(tmp_path: Path) -> Iterator[Photographer | None]:
    """None where there is no browser, or no page for it."""
    with ExitStack() as stack:
        try:
            files()
            browser = stack.enter_context(open_browser())
        except (NoBrowserError, MissingPathError):
            yield None
            return
        (tmp_path / "pictures").mkdir()
        yield Photographer(browser, tmp_path / "pictures")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def sold(folder: Path) -> list[dict[str, int | str]]:
    return [json.loads(line) for path in folder.glob("sales/part-*") for line in path.read_text().splitlines()]


@pytest.mark.spark
def test_the_page_does_what_it_says(folder: Path, photographer: Photographer | None) -> None:
    """A2, E1, G9, H2: through a kill -9 and a change of the program, each minute is written once, and totals go on."""
    reader = Reader(folder, Path(sys.executable).parent, look=photographer)
    try:
        reader.read()
        reader.wait()
    finally:
        reader.close()
    lines = sold(folder)
    counts = Counter((line["shop"], line["minute"]) for line in lines)
    assert set(counts.values()) == {1}
    assert {line["orders"] for line in lines} == {300}
    for shop in {line["shop"] for line in lines}:
        mine = sorted((line for line in lines if line["shop"] == shop), key=lambda line: line["minute"])
        assert [line["total"] for line in mine] == running_sums([int(line["cents"]) for line in mine])
        first_best = next(place for place, line in enumerate(mine) if "best" in line)
        assert first_best > 10
        assert all("best" in line for line in mine[first_best:])
    if photographer is not None:
        assert photographer.taken == list(VIEWS)


def running_sums(values: list[int]) -> list[int]:
    return [sum(values[: end + 1]) for end in range(len(values))]


def test_every_picture_of_the_page_has_a_view() -> None:
    pictures = [thing.name for thing in things(PAGE.read_text()) if isinstance(thing, Picture)]
    assert pictures == list(VIEWS)


@pytest.mark.parametrize(
    ("printed", "is_right"),
    [
        ("Delft   13 minutes, 0 missing, 0 twice: 20.50 euros\n", True),
        ("Delft   13 minutes, 1 missing, 0 twice: 20.50 euros\n", False),
        ("Delft   13 minutes, 0 missing, 0 twice: 20.50 euros\nmore\n", False),
        ("", False),
    ],
)
def test_figures_that_depend_on_the_moment_may_differ_and_no_others(
    printed: str, is_right: bool, tmp_path: Path
) -> None:
    command = Command("look", ("Delft   11 minutes, 0 missing, 0 twice: 2001.11 euros",))
    with nullcontext() if is_right else pytest.raises(AssertionError):
        command.check(printed, tmp_path)


def test_a_change_must_fit_the_program() -> None:
    change = Change(("     a", "-    b", "+    c"))
    assert change.apply("x\n    a\n    b\n") == "x\n    a\n    c\n"
    with pytest.raises(AssertionError, match="not once"):
        change.apply("x\n    b\n")
