"""`penstock package-env`: what goes into the archive, what is printed, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unpacking import unpack

from penstock.base.errors import OperationError
from penstock.cli.main import main
from penstock.cli.package_env import OWN, PACKAGES, chosen, installed, interpreter, list_distribution_files

pytestmark = pytest.mark.slow

SMALL = ["click", "xxhash"]
#: What Penstock needs of others; without them the archive is quickly made.
LARGE = ["pyarrow", "pandas", "numpy", "rocksdict", "pygments", "pytz", "tzdata", "msgspec", "pyzmq"]


def package_env(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["package-env", *map(str, arguments)])


def without(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--exclude", name)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A small archive, unpacked, and what was printed."""
    folder = tmp_path_factory.mktemp("environment")
    result = package_env(folder / "env.tar.gz", "--only", "click", "--only", "XXHash", *without(LARGE))
    assert result.exit_code == 0, result.output
    with tarfile.open(folder / "env.tar.gz") as archive:
        unpack(archive, folder / "unpacked")
    return folder, result


def test_packages_of_choice_come_with_what_workers_of_spark_need() -> None:
    """Pandas belongs to the extra for Spark, and PySpark's mapInArrow refuses to begin without it."""
    packages = chosen(["click"], [], installed())
    assert {"click", "pandas", "pyarrow", OWN} <= set(packages)
    assert set(packages).isdisjoint({"pyspark", "pytest"})


def test_the_archives_python_runs_elsewhere(made: tuple[Path, Result]) -> None:
    """Its library and packages are those in the archive; so is Penstock, though here it is installed from source."""
    folder = (made[0] / "unpacked").resolve()
    source = (
        "import click, json, os, ssl, sys, xxhash; from importlib.metadata import version; files = os, click, xxhash; "
        f"print(json.dumps([sys.version, version('{OWN}'), *(file.__file__ for file in files), *sys.path]))"
    )
    ran = subprocess.run([folder / "bin/python", "-Ic", source], env={}, capture_output=True, text=True, check=True)
    version, penstock_version, *paths = json.loads(ran.stdout)
    assert version == sys.version
    assert penstock_version == installed()[OWN].version
    assert [path for path in paths if not Path(path).is_relative_to(folder)] == []
    assert (folder / PACKAGES / "penstock" / "py.typed").is_file()
    assert not list((folder / PACKAGES).glob("*.pth"))


def test_what_is_printed(made: tuple[Path, Result]) -> None:
    lines = made[1].output.splitlines()
    archive = made[0] / "env.tar.gz"
    assert lines[0].startswith(f"{archive}: {archive.stat().st_size / 2**20:,.1f} MiB, ")
    assert f"Python {sys.version.split()[0]} for linux" in lines[0]
    names = [package.split()[0] for package in lines[1].partition(": ")[2].split(", ")]
    assert {*SMALL, OWN} <= {*names}
    assert not {*names} & {*LARGE, "pyspark", "py4j", "pytest"}
    kinds = [line for line in lines if line.endswith(":")]
    assert [kind.split()[0].rstrip(",") for kind in kinds] == ["standalone", "YARN", "YARN", "Kubernetes"]


def test_pyspark_is_left_out_and_all_else_is_there() -> None:
    among = installed()
    assert {*among} - {*chosen([], [], among)} <= {"pyspark", "py4j", "pip", "uv"}
    assert "pyspark" in among


def test_the_same_environment_gives_the_same_bytes(made: tuple[Path, Result], tmp_path: Path) -> None:
    result = package_env(tmp_path / "again.tar.gz", "--only", "click", "--only", "xxhash", *without(LARGE))
    assert result.exit_code == 0
    assert (tmp_path / "again.tar.gz").read_bytes() == (made[0] / "env.tar.gz").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["there.tar.gz"], "there.tar.gz already exists; name another file, or replace it with --force"),
        (["new.zip"], "new.zip is no name for the archive: Spark unpacks it only if it ends in .tar.gz"),
        (["new.tar.gz", "--only", "no-such"], "no-such is not installed for"),
        (["new.tar.gz", "--exclude", "no-such"], "no-such is not installed for"),
        (["no/new.tar.gz", "--only", "click", *without(LARGE)], "no/new.tar.gz cannot be written: "),
    ],
)
def test_what_is_refused(arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.tar.gz").write_text("mine")
    result = package_env(*arguments)
    assert result.exit_code == 1
    assert text in result.output
    assert len(result.output.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.tar.gz"]
    assert Path("there.tar.gz").read_text() == "mine"


def test_another_package_that_is_installed_from_source_is_refused(tmp_path: Path) -> None:
    from importlib.metadata import PathDistribution

    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "direct_url.json").write_text('{"url": "file:///mine", "dir_info": {"editable": true}}')
    with pytest.raises(OperationError, match="install it without -e, or leave it out with --exclude mine"):
        list(list_distribution_files("mine", PathDistribution(tmp_path)))
    (tmp_path / "direct_url.json").unlink()
    with pytest.raises(OperationError, match="install it with pip, in a virtual environment"):
        list(list_distribution_files("mine", PathDistribution(tmp_path)))


def test_condas_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(OperationError, match="pack it with conda-pack"):
        list(interpreter())


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --force the former archive stays until the new one is whole."""
    target = tmp_path / "env.tar.gz"
    target.write_text("former")
    monkeypatch.setattr(tarfile.TarFile, "addfile", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    result = package_env(target, "--only", "click", *without(LARGE), "--force")
    assert result.exit_code == 1
    assert "no space" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["env.tar.gz"]
    assert target.read_text() == "former"
