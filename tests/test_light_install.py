"""What a bare `pip install` brings is little, and runs every program on `execution.target: local`."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock.base.errors import DISTRIBUTION, ConfigurationError
from penstock.drivers.spark import session

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Everything that `pip install` brings besides Penstock. README and docs/quickstart.md give the size.
PACKAGES = {
    "anyio", "click", "cloudpickle", "fsspec", "h11", "idna", "markdown-it-py", "mdurl", "msgspec", "numpy", "psutil",
    "pyarrow", "pygments", "pyyaml", "pyzmq", "rich", "rocksdict", "starlette", "typing-extensions", "uvicorn",
    "xxhash",
}  # fmt: skip
MEGABYTES_MAX = 300

#: Modules that cannot be imported without an extra, and what they need. Others import them when the feature is used.
NEED_AN_EXTRA = {
    "penstock.cli.sql_shell.prompt": "prompt_toolkit",
    # Of HDFS, which no extra brings: the error names the package.
    "penstock.codecs.hadoop_files": "requests",
    "penstock.connectors.iceberg.hadoop": "pyiceberg",
    "penstock.connectors.kafka.cluster": "aiokafka",
    "penstock.connectors.kafka.message_producer": "confluent_kafka",
    "penstock.drivers.spark.daemon": "pyspark",
    "penstock.drivers.spark.shared_session": "pyspark",
}

IMPORT_EVERYTHING = """
import importlib, pkgutil, penstock

for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name, error.name)
"""

LOCAL_PROGRAM = """
import sys
from penstock.common import Configuration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.table import EnvironmentSettings, TableEnvironment

local = Configuration.from_dict({"execution.target": "local"})
for mode in RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH:
    env = StreamExecutionEnvironment.get_execution_environment(local)
    env.set_runtime_mode(mode)
    words = env.from_collection(["to be", "or not to be"]).flat_map(str.split).map(lambda word: (word, 1))
    counts = words.key_by(lambda pair: pair[0]).reduce(lambda left, right: (left[0], left[1] + right[1]))
    print(mode.name, max(count for _, count in counts.collect()))
tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
tables.get_config().set("execution.target", "local")
query = "SELECT SUM(n) AS total FROM (VALUES (1), (2), (3)) AS t(n)"
print("SQL", [row[0] for row in tables.execute_sql(query).collect()][-1])
print("Arrow", tables.sql_query(query).to_arrow().to_pydict())
loaded = {name.partition(".")[0] for name in sys.modules}
print("loaded", sorted(loaded & {"pandas", "pyspark", "py4j", "confluent_kafka"}))
"""

SPARK_PROGRAM = """
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.table import EnvironmentSettings, TableEnvironment

def stream(mode):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode)
    env.from_collection([1, 2]).map(lambda number: number + 1).collect()

def query(settings, target="spark"):
    tables = TableEnvironment.create(settings)
    tables.get_config().set("execution.target", target)
    tables.execute_sql("SELECT SUM(n) FROM (VALUES (1), (2)) AS t(n)").print()

calls = [
    lambda: stream(RuntimeExecutionMode.STREAMING),
    lambda: stream(RuntimeExecutionMode.BATCH),
    lambda: query(EnvironmentSettings.in_streaming_mode()),
    lambda: query(EnvironmentSettings.in_batch_mode()),
    lambda: query(EnvironmentSettings.in_batch_mode(), "local"),
]
for call in calls:
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error))
"""


def find_packages(names: list[str]) -> Iterator[str]:
    """The packages that these requirements bring, with those that they need in turn."""
    waiting, known = [Requirement(name) for name in names], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not applies or name in known:
            continue
        known.add(name)
        yield name
        waiting += map(Requirement, importlib.metadata.requires(name) or ())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to what a bare install brings."""
    folder = tmp_path_factory.mktemp("bare")
    for name in find_packages(PROJECT["dependencies"]):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder


def run_bare(bare: Path, program: str) -> list[str]:
    """The lines that a program prints which has only what a bare install brings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    environment["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{bare}"
    command = [sys.executable, "-S", "-c", program]  # -S: without the packages of this environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_bare_install_brings_these_packages() -> None:
    """A package more is megabytes and a risk for each user: it joins this list, and the pages give the new size."""
    assert set(find_packages(PROJECT["dependencies"])) == PACKAGES


def test_a_bare_install_is_small() -> None:
    sizes = {
        name: sum(file.size or 0 for file in importlib.metadata.files(name) or ()) / 1e6
        for name in find_packages(PROJECT["dependencies"])
    }
    own = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".txt")) / 1e6
    assert sizes["pyarrow"] > 1  # there are sizes at all
    assert sum(sizes.values()) + own < MEGABYTES_MAX, sizes


def test_only_these_modules_need_an_extra(bare: Path) -> None:
    assert dict(line.split() for line in run_bare(bare, IMPORT_EVERYTHING)) == NEED_AN_EXTRA


def test_programs_run_locally_without_spark_and_pandas(bare: Path) -> None:
    assert run_bare(bare, LOCAL_PROGRAM) == [
        "STREAMING 2",
        "BATCH 2",
        "SQL 6",
        "Arrow {'total': [6]}",
        "loaded []",
    ]


def test_without_pyspark_the_default_target_names_both_remedies(bare: Path) -> None:
    *on_spark, batch_tables = run_bare(bare, SPARK_PROGRAM)
    install = f'pip install "{DISTRIBUTION}[spark]"'
    assert on_spark == [
        "ConfigurationError a program runs on Spark unless it names a target, and PySpark is not installed: "
        f"set execution.target: local, which needs no Spark, or install it: {install}"
    ] * 4  # fmt: skip
    assert batch_tables == (
        "ConfigurationError tables in batch mode and Spark's connectors run on Spark on every target, and PySpark is "
        f"not installed: use streaming mode, which needs no Spark, or install it: {install}"
    )


def test_pyspark_without_pandas_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where Spark brings its own PySpark: its workers would fail with an error of their own."""
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "pandas" else object())
    with pytest.raises(
        ConfigurationError, match=r"pandas, which PySpark needs, is not installed: set execution\.target"
    ):
        session.require_pyspark({})


def test_the_distribution_has_one_name() -> None:
    """Hints, pages and the project name the same distribution, which is not the `penstock` of the public index."""
    assert PROJECT["name"] == DISTRIBUTION
    examples = [path for end in ("py", "yaml", "md") for path in ROOT.glob(f"examples/**/*.{end}")]
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py"), *examples]
    wrong = [
        f"{page.relative_to(ROOT)}: {found}"
        for page in pages
        for found in re.findall(
            r"pip install ['\"]?penstock\b(?!-streams).{0,20}|(?<!dbt-)penstock\[\w+\]", page.read_text()
        )
    ]
    assert wrong == []


def test_each_extra_of_a_hint_exists() -> None:
    extras = {*PROJECT["optional-dependencies"]}
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"write_install_command\(['\"]([\w-]+)['\"]\)", sources))
    assert len(named) > 5
    assert named <= extras
    pages = "\n".join(path.read_text() for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    on_pages = {extra for text in re.findall(rf"{DISTRIBUTION}\[([\w,-]+)\]", pages) for extra in text.split(",")}
    assert len(on_pages) > 5
    assert on_pages <= extras
