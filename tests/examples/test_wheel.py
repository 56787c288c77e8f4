"""By the pages alone: from a wheel and an empty directory, without the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.examples.pages import PAGES, ROOT, TIMEOUT_S, run_page

pytestmark = pytest.mark.slow

#: What somebody reads first who has installed Penstock.
FIRST_PAGES = ["README.md", "docs/quickstart.md", "docs/connectors.md"]
#: On Spark the others share a JVM; the workers of the last one look for its files where the program began.
OWN_JVM = FIRST_PAGES[1:]
#: Run elsewhere: it kills a worker on Spark, see tests/cli/demo.
ELSEWHERE = ["penstock demo"]


def commands() -> list[str]:
    """The commands of Penstock that README and quick start show."""
    shown = [
        line
        for page in FIRST_PAGES
        for line in re.findall(r"^    (penstock (?:demo|version|savepoint).*)$", (ROOT / page).read_text(), re.M)
    ]
    return sorted({re.sub(r"\s+#.*", "", line) for line in shown} - set(ELSEWHERE))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with Penstock's wheel, and with the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"), cwd=folder)
    made = str(folder / "venv" / "bin" / "python")
    run(str(ROOT / "scripts/uv"), "pip", "install", "--offline", "--no-deps", "--python", made, str(wheel), cwd=folder)
    # A directory that a .pth names is searched, but its own .pth files, among them the checkout's, are not read.
    (packages,) = folder.glob("venv/lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_the_wheel_that_is_tested(python: str, tmp_path: Path) -> None:
    found = Path(run(python, "-c", "import penstock; print(penstock.__file__)", cwd=tmp_path).strip())
    assert found.is_relative_to(Path(python).parents[1])


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_the_programs_of_the_first_pages_run(page: str, python: str, tmp_path: Path) -> None:
    """A2, G9: as scripts, from an empty directory."""
    PAGES[page].check(run_page(page, "local", tmp_path, python))


@pytest.mark.spark
@pytest.mark.parametrize("page", OWN_JVM)
def test_programs_run_on_spark_with_a_jvm_of_their_own(page: str, python: str, tmp_path: Path) -> None:
    """A2, E8: as scripts, from an empty directory."""
    PAGES[page].check(run_page(page, "spark", tmp_path, python))


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_first_pages_run(command: str, python: str, tmp_path: Path) -> None:
    """A2: those for one process; `penstock demo` on Spark is run by tests/cli/demo."""
    name, *arguments = command.split()
    assert run(str(Path(python).with_name(name)), *arguments, cwd=tmp_path)
