"""The page of promises, and the tests that cite them, agree.

Ids are cited at the start of a docstring, ahead of a colon or full stop, or in parentheses, ahead of their end or of a
colon. Elsewhere a word such as B6 is a cell of a table, a carrier in a data set, or a rule of the linter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"
SPARED = {PAGE, Path(__file__)}
SOURCES = sorted({*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")} - SPARED)
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")} - SPARED)

IDS = r"(?:[A-K]\d{1,2}|J)(?:(?:, | to )(?:[A-K]\d{1,2}|J))*"
CITATION = re.compile(rf'"""({IDS})(?=[:.])|\((?:[^()\n]*? )??({IDS})(?=[):])')
ROW = re.compile(r"^- \*\*(\w+)\*\* (.*(?:\n  .*)*)", re.MULTILINE)
PROOF = re.compile(r"\]\(\.\./(tests/[^)]+)\)")


def cited(text: str) -> set[str]:
    """The ids that a text cites."""
    found: set[str] = set()
    for opening, bracketed in CITATION.findall(text):
        found.update(re.split(", | to ", opening or bracketed))
    return found


def rows(section: str) -> dict[str, str]:
    """The text of each row by its id; none is there twice."""
    found = ROW.findall(section)
    assert len(dict(found)) == len(found) > 0
    return dict(found)


PROMISES = rows(PAGE.read_text())
CITED = {path: cited(path.read_text()) for path in [*SOURCES, *DOCUMENTS]}


def places(ids: set[str]) -> dict[str, list[str]]:
    """Where these ids are cited."""
    found = defaultdict(list)
    for path, its in CITED.items():
        for promise in sorted(its & ids):
            found[promise].append(str(path.relative_to(ROOT)))
    return dict(found)


def test_promises_are_in_order() -> None:
    assert list(PROMISES) == sorted(PROMISES, key=lambda promise: (promise[0], int(promise[1:] or 0)))


def test_every_cited_id_is_on_the_page() -> None:
    everywhere = {promise for its in CITED.values() for promise in its}
    assert not places(everywhere - set(PROMISES))


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_names_tests_that_cite_it(promise: str) -> None:
    proofs = PROOF.findall(PROMISES[promise])
    assert proofs
    assert len(proofs) == len(set(proofs))
    lacking = [proof for proof in proofs if promise not in CITED.get(ROOT / proof, set())]
    assert not lacking, f"these do not cite {promise}: {lacking}"
    assert all(Path(proof).name.startswith("test_") for proof in proofs)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('"""F3: the end."""', {"F3"}),
        ('"""A1, G11, J: several."""', {"A1", "G11", "J"}),
        ('"""I3."""', {"I3"}),
        ('"""A module about timers (F5)."""', {"F5"}),
        ('"""A module about much (A1, B3, J)."""', {"A1", "B3", "J"}),
        ('"""Words ahead of it (unaligned checkpoints, G5)."""', {"G5"}),
        ('"""All modes (G1 to G5)."""', {"G1", "G5"}),
        ('"""A source (G8: the position is an index)."""', {"G8"}),
        ('"""Z9: no promise has it."""', set()),
        ('"""Benchmarks W1 and S8, the cell B2 of a sheet."""', set()),
        ('CODES = ("UA", "B6", "F9")', set()),
        ('select = ["B", "C4"]', set()),
        ("of the carriers (B6), and J alone", {"B6"}),
    ],
)
def test_a_citation_is_told_from_other_words(text: str, ids: set[str]) -> None:
    assert cited(text) == ids
