"""The program of every page runs as a script in one process, and prints what the page says."""

from pathlib import Path

import pytest
from tests.examples.pages import PAGES, ROOT, blocks_of, run_page, runs_on

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", runs_on("local"))
def test_the_program_of_a_page_runs_in_one_process(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A2, C1, G9, H5: what the page says holds."""
    variables = {name.upper(): request.getfixturevalue(name).bootstrap_servers for name in PAGES[page].servers}
    PAGES[page].check(run_page(page, "local", tmp_path, variables=variables))


def test_no_program_is_left_out() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]
    with_program = {str(path.relative_to(ROOT)) for path in documents if blocks_of(str(path.relative_to(ROOT)))}
    assert with_program - {"CONTRIBUTING.md"} == set(PAGES)
