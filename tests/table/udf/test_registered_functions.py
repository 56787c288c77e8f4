"""Functions by name: in sessions, in catalogs, and as SQL makes them."""

from __future__ import annotations

import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import environment, read_rows

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table.udf import udf

MODULE = "tests.table.udf.importable"


def test_sql_makes_functions_of_modules() -> None:
    """What `udf` made, a class, or a plain function with annotations."""
    made = environment()
    made.execute_sql(f"CREATE TEMPORARY FUNCTION plus AS '{MODULE}.add' LANGUAGE PYTHON")
    made.execute_sql(f"CREATE TEMPORARY SYSTEM FUNCTION size_of AS '{MODULE}.length' LANGUAGE PYTHON")
    made.execute_sql(f"CREATE FUNCTION letters AS '{MODULE}.Letters' LANGUAGE PYTHON")
    sql = "SELECT plus(id, 1), size_of(text), f0 FROM words, LATERAL TABLE(letters(text)) WHERE id = 2"
    assert read_rows(made, sql) == [(3, 1, "c")]
    assert made.list_user_defined_functions() == ["letters", "plus", "size_of"]
    made.execute_sql("DROP TEMPORARY FUNCTION plus")
    with pytest.raises(ValidationError, match="No match found for function signature PLUS"):
        made.sql_query("SELECT plus(1, 2)")


def test_a_function_of_a_catalog_is_found_by_its_path() -> None:
    """And replaced by ALTER."""
    made = environment()
    made.execute_sql("CREATE DATABASE other")
    made.execute_sql(f"CREATE FUNCTION other.f AS '{MODULE}.add' LANGUAGE PYTHON")
    assert read_rows(made, "SELECT default_catalog.other.f(1, 2), other.F(2, 3)") == [(3, 5)]
    made.execute_sql(f"ALTER FUNCTION other.f AS '{MODULE}.length' LANGUAGE PYTHON")
    assert read_rows(made, "SELECT other.f('abc')") == [(3,)]
    with pytest.raises(ValidationError, match="No match found"):
        made.sql_query("SELECT f(1, 2)")


def test_which_function_a_name_means() -> None:
    """A temporary system function, then Flink's own, then a temporary one, then one of the catalog."""
    made = environment()
    made.execute_sql(f"CREATE FUNCTION which AS '{MODULE}.length' LANGUAGE PYTHON")
    assert read_rows(made, "SELECT which('abc')") == [(3,)]
    made.create_temporary_function("which", udf(lambda text: "temporary", result_type="STRING"))
    assert read_rows(made, "SELECT which('abc')") == [("temporary",)]
    made.create_temporary_system_function("which", udf(lambda text: "system", result_type="STRING"))
    assert read_rows(made, "SELECT which('abc')") == [("system",)]
    made.create_temporary_function("initcap", udf(lambda text: "mine", result_type="STRING"))
    assert read_rows(made, "SELECT INITCAP('abc'), default_database.initcap('abc')") == [("Abc", "mine")]
    made.create_temporary_system_function("initcap", udf(lambda text: "mine", result_type="STRING"))
    assert read_rows(made, "SELECT INITCAP('abc') || '!'") == [("mine!",)]


MISSING = {
    "nowhere": "the path of a function in Python is module.name, not 'nowhere'",
    "no_such_module.f": "cannot import 'no_such_module.f': No module named 'no_such_module'; ship the module",
    f"{MODULE}.nothing": f"there is no 'nothing' in module '{MODULE}'",
}


@pytest.mark.parametrize("target", MISSING)
def test_a_path_that_leads_nowhere_is_told_when_it_is_called(target: str) -> None:
    """With the function that has it."""
    made = environment()
    made.execute_sql(f"CREATE TEMPORARY FUNCTION f AS '{target}' LANGUAGE PYTHON")
    with pytest.raises(ValidationError, match=f"function f: .*{MISSING[target]}"):
        made.sql_query("SELECT f(1)")


def test_what_is_no_function_is_not_registered() -> None:
    """With its name."""
    made = environment()
    with pytest.raises(TypeError, match="Invalid function 'f': 17 is not what udf, udtf, udaf or udtaf make"):
        made.create_temporary_function("f", 17)
    made.execute_sql(f"CREATE FUNCTION g AS '{MODULE}.number' LANGUAGE PYTHON")
    with pytest.raises(TypeError, match="Invalid function 'g': 17"):
        made.sql_query("SELECT g(1)")
    assert made.list_user_defined_functions() == ["g"]


def test_functions_in_java_are_refused() -> None:
    """With what to do."""
    made = environment()
    for create in (made.create_java_function, made.create_java_temporary_function):
        with pytest.raises(UnsupportedError, match=r"function f: .* such as com\.F; write it in Python with udf"):
            create("f", "com.F")
    with pytest.raises(UnsupportedError, match="function f"):
        made.create_java_temporary_system_function("f", "com.F")


def test_a_view_keeps_its_functions() -> None:
    """Also those without a name."""
    made = environment()
    words = made.from_path("words")
    made.create_temporary_view("sums", words.select(importable.add(words.id, 1).alias("sum_")))
    assert read_rows(made, "SELECT sum_ FROM sums") == [(2,), (3,), (4,)]
