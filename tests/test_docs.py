"""Documents tell the truth about where things are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    """A link to a file or folder of this repository leads to one that exists."""
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing
