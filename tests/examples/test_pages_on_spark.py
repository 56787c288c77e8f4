"""The program of every page that has to do with Spark runs there as a script, some of them in `test_wheel`.

The scripts are processes of their own and share a Spark application; those of `test_wheel` have a JVM each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.pages import PAGES, run_page, runs_on
from tests.examples.shared_jvm import SharedJvm
from tests.examples.test_wheel import OWN_JVM

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    made = SharedJvm(tmp_path_factory.mktemp("joins"))
    yield made
    made.close()


@pytest.mark.parametrize("page", [page for page in runs_on("spark") if page not in OWN_JVM])
def test_the_program_of_a_page_runs_on_spark(page: str, tmp_path: Path, jvm: SharedJvm) -> None:
    """A2, E8: what the page says holds there, too."""
    try:
        printed = run_page(page, "spark", tmp_path, variables=jvm.variables)
    finally:
        jvm.end_session()
    PAGES[page].check(printed)
