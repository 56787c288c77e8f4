"""Built-in connectors and formats are found by name, and imported when a table first uses them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.sql.connectors.built_in import CONNECTORS, CONNECTORS_WITH_FORMATS, built_in
from penstock.sql.formats import FORMATS, built_in_formats

IMPORTED = """
import sys
import penstock.table

print(sorted({"confluent_kafka", "pandas", "psycopg", "pyiceberg", "deltalake", "pyspark"} & set(sys.modules)))
print(sum(name.startswith("penstock") for name in sys.modules))
"""


@pytest.mark.parametrize("name", [*CONNECTORS, *CONNECTORS_WITH_FORMATS])
def test_the_table_of_connectors_names_each_class_by_its_name(name: str) -> None:
    connector = built_in().find(name)
    assert connector is not None
    assert connector.name == name


def test_all_connectors_are_listed_before_any_is_imported() -> None:
    assert {*CONNECTORS, *CONNECTORS_WITH_FORMATS} <= set(built_in().names())


def test_the_table_of_formats_names_each_class_by_its_name() -> None:
    assert [table_format.name for table_format in built_in_formats()] == list(FORMATS)


def test_importing_the_table_api_imports_no_client_library_and_few_modules() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    libraries, modules = done.stdout.splitlines()
    assert libraries == "[]"
    assert int(modules) <= 400
