"""The program of every page runs as a script in one process, and prints what the page says."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.examples.pages import PAGES, ROOT, blocks_of, run_page, runs_on

pytestmark = pytest.mark.one_in(3)


@pytest.mark.parametrize("page", runs_on("local"))
def test_the_program_of_a_page_runs_in_one_process(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A2, C1, G9, H5: what the page says holds."""
    variables = {name.upper(): request.getfixturevalue(name).bootstrap_servers for name in PAGES[page].servers}
    PAGES[page].check(run_page(page, "local", tmp_path, variables=variables))


def test_no_program_is_left_out() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]
    with_program = {str(path.relative_to(ROOT)) for path in documents if blocks_of(str(path.relative_to(ROOT)))}
    assert with_program - {"CONTRIBUTING.md"} == set(PAGES)


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_what_is_called_missing_is_missing() -> None:
    """A2: a module of PyFlink that has come is taken off the list in docs/coming-from-pyflink.md."""
    text = (ROOT / "docs/coming-from-pyflink.md").read_text()
    called_missing = re.findall(r"`(pyflink\.[\w.]+)`", text[text.index("## Not there") : text.index("## What may")])
    assert len(called_missing) > 5
    assert [name for name in called_missing if is_there(name.replace("pyflink", "penstock"))] == []
