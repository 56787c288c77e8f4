"""docs/ten-minutes.md from its first command on, which installs the package with pip.

    python -m tests.tutorial [--pictures docs/images]

Builds a wheel of this checkout, makes an environment without anything in it, and does what the page says, on Spark.
That takes some minutes, most of them for pip. With `--here` nothing is installed:
the package is that of this environment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
from tests.server.page.browser import open_browser
from tests.server.page.images import GATHERS_S
from tests.tutorial.page import ROOT
from tests.tutorial.pictures import Photographer
from tests.tutorial.reader import INSTALL, Reader

from penstock.base.errors import DISTRIBUTION


def build_wheel(directory: Path) -> Path:
    """A wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


class Installer:
    """Types the page's `pip install`, with the path of a wheel in place of the package's name."""

    def __init__(self, programs: Path, wheel: Path) -> None:
        self._pip = programs / "pip"
        self._wheel = wheel

    def __call__(self, line: str) -> None:
        wanted = line.removeprefix(INSTALL).strip("'")
        subprocess.run([self._pip, "install", wanted.replace(DISTRIBUTION, str(self._wheel))], check=True)


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.option("--pictures", type=click.Path(path_type=Path, file_okay=False), help="Where pictures go; none without.")
@click.option("--here", is_flag=True, help="Install nothing.")
def main(pictures: Path | None, here: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-tutorial-") as place, ExitStack() as stack:
        folder, programs, install = Path(place) / "sales", Path(sys.executable).parent, None
        folder.mkdir()
        if not here:
            programs = Path(place) / "environment" / "bin"
            subprocess.run([sys.executable, "-m", "venv", str(programs.parent)], check=True)
            install = Installer(programs, build_wheel(Path(place)))
        look = None
        if pictures is not None:
            look = Photographer(stack.enter_context(open_browser()), pictures, GATHERS_S * 1000)
        reader = Reader(folder, programs, install, look)
        try:
            reader.read()
            reader.wait()
        finally:
            reader.close()
    print("The page holds.")


if __name__ == "__main__":
    main()
