"""The page of Flink's features is as its file has it, and the file tells what the code has."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from penstock.base.options import REGISTRY
from penstock.base.unknown_options import TABLE_OPTIONS
from penstock.common.errors import PenstockError, UnsupportedError
from penstock.sql.connectors.built_in import built_in
from penstock.sql.formats import built_in_formats
from penstock.table import EnvironmentSettings, TableEnvironment

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "docs" / "flink-features.toml"
COMMAND = [sys.executable, str(ROOT / "scripts/features.py"), str(SOURCE), str(ROOT / "docs/flink-features.md")]
#: Words of the file ahead of a name, with an example of that kind that exists.
KINDS = {
    "option": "execution.checkpointing.interval",
    "connector": "kafka",
    "format": "json",
    "catalog": "generic_in_memory",
    "function": "TO_CHANGELOG",
    "statement": "SHOW TABLES",
    "database": "postgresql",
    "value": "state.backend.type=rocksdb",
}


def load_script() -> ModuleType:
    spec = spec_from_file_location("script_of_features", ROOT / "scripts/features.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
FEATURES = SCRIPT.read_features(SOURCE)


@cache
def read_anchors(page: str) -> frozenset[str]:
    """The anchors of the headings of a page, as repositories and the site make them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def tell_error(*statements: str) -> str:
    """The error that the last of these statements ends with, or nothing."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.execute_sql(
        "CREATE TABLE t (a INT, p INT) PARTITIONED BY (p) WITH ('connector' = 'filesystem', 'path' = '/t')"
    )
    for statement in statements[:-1]:
        tables.execute_sql(statement)
    try:
        tables.execute_sql(statements[-1])
    except UnsupportedError as error:
        return f"not supported: {error}"
    except PenstockError as error:
        return str(error)
    return ""


def option_takes(option: str, value: str) -> bool:
    try:
        REGISTRY[option].convert(value)
    except PenstockError:
        return False
    return True


def exists(name: str) -> bool:
    """Whether there is a Python name or, after a word for its kind, an option, a connector and so on."""
    kind, _, rest = name.partition(" ")
    match kind:
        case "option":
            return rest in REGISTRY or rest in TABLE_OPTIONS
        case "value":
            return option_takes(*rest.split("="))
        case "connector":
            return built_in().find(rest) is not None
        case "format":
            return rest in {table_format.name for table_format in built_in_formats()}
        case "catalog":
            return "there is no type" not in tell_error(f"CREATE CATALOG c WITH ('type' = '{rest}')")
        case "database":
            options = f"'connector' = 'jdbc', 'url' = 'jdbc:{rest}://host/shop', 'table-name' = 'goods'"
            error = tell_error(f"CREATE TABLE goods (id INT) WITH ({options})", "EXPLAIN SELECT * FROM goods")
            return "the connector jdbc speaks to" not in error
        case "function":
            error = tell_error(f"EXPLAIN SELECT * FROM {rest}(TABLE t)")
            return re.search("^not supported|No match found for function signature", error) is None
        case "statement":
            return not tell_error(rest).startswith("not supported")
    return python_name_exists(name)


def python_name_exists(name: str) -> bool:
    package, _, member = name.rpartition(".")
    if not package:
        return find_spec(name) is not None
    if not python_name_exists(package):
        return False
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # the package is a class
        module, _, holder = package.rpartition(".")
        return hasattr(getattr(importlib.import_module(module), holder), member)
    return hasattr(importlib.import_module(package), member)


def test_the_page_is_as_the_file_has_it() -> None:
    assert subprocess.run([*COMMAND, "--check"], timeout=60, check=False).returncode == 0, "run `make features`"


def test_the_command_lists_what_is_missing() -> None:
    command = [*COMMAND, "--list", "missing"]
    printed = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(printed) == sum(feature.verdict == "missing" for feature in FEATURES)
    weights = [int(line[0]) for line in printed]
    assert weights == sorted(weights, reverse=True)


def test_each_feature_has_one_line() -> None:
    assert len({feature.feature for feature in FEATURES}) == len(FEATURES)


def test_lines_are_complete() -> None:
    """What works has a proof; what differs, works partly or is left out has a reason."""
    for feature in FEATURES:
        assert feature.verdict in SCRIPT.VERDICTS, feature
        assert feature.weight in range(1, 6), feature
        if feature.verdict in SCRIPT.PROVEN:
            assert feature.tests, feature
            assert feature.page, feature
        assert feature.note or feature.verdict in ("works", "missing"), feature
        assert not feature.note or feature.note.endswith("."), feature
        assert not feature.absent or feature.verdict not in ("works", "differs"), feature


def test_each_test_that_is_named_exists() -> None:
    for test in {test for feature in FEATURES for test in feature.tests}:
        file, *names = test.split("::")
        assert file.startswith(("tests/", "integrations/")), test
        assert (ROOT / file).is_file(), test
        for name in names or ["test_.*"]:
            definition = rf"^ *(class|(async )?def) {name}[(:]"
            assert re.search(definition, (ROOT / file).read_text(), re.MULTILINE), test


def test_each_page_that_is_named_has_that_section() -> None:
    for feature in FEATURES:
        page, _, anchor = feature.page.partition("#")
        if page:
            assert (ROOT / "docs" / page).is_file(), feature
            assert not anchor or anchor in read_anchors(page), feature


@pytest.mark.parametrize("name", sorted({feature.absent for feature in FEATURES if feature.absent}))
def test_what_is_called_absent_is_absent(name: str) -> None:
    assert not exists(name), f"{name} exists: change its line in docs/flink-features.toml"


@pytest.mark.parametrize("name", [*map(" ".join, KINDS.items()), "penstock.table.Table.execute", "penstock.cep.CEP"])
def test_the_search_finds_names_that_exist(name: str) -> None:
    assert exists(name)
