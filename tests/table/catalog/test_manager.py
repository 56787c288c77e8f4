"""Where tables are found."""

from __future__ import annotations

import pytest
from tests.table.planned import CUSTOMERS, create, manager_of, plan_query

from penstock.sql.catalogs.columns import Schema
from penstock.sql.data.errors import ValidationError
from penstock.table.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath

TABLE = CatalogBaseTable.create_table(Schema.new_builder().column("a", "INT").build(), properties={"connector": "x"})
VIEW = CatalogBaseTable.create_view("SELECT 1", "SELECT 1", Schema.new_builder().column("a", "INT").build())
PATH = ObjectPath("default_database", "t")


def test_a_catalog_keeps_tables_views_and_functions() -> None:
    """Under their databases, by name."""
    catalog = Catalog("mine")
    catalog.create_table(PATH, TABLE)
    catalog.create_table(ObjectPath("default_database", "v"), VIEW)
    catalog.create_function(PATH, CatalogFunction("module.f"))
    assert catalog.list_tables("default_database") == ["t", "v"]
    assert catalog.list_views("default_database") == ["v"]
    assert catalog.list_functions("default_database") == ["t"]
    assert catalog.get_table(PATH).get_options() == {"connector": "x"}
    catalog.rename_table(PATH, "u")
    assert not catalog.table_exists(PATH)
    catalog.drop_table(ObjectPath("default_database", "u"))
    catalog.drop_function(PATH)
    assert catalog.list_tables("default_database") == ["v"]


def test_what_is_there_already_or_not_at_all_is_refused() -> None:
    """Unless the call says that it may be so."""
    catalog = Catalog("mine")
    catalog.create_table(PATH, TABLE)
    catalog.create_table(PATH, TABLE, ignore_if_exists=True)
    with pytest.raises(ValidationError, match=r"default_database\.t already exists in Catalog mine"):
        catalog.create_table(PATH, TABLE)
    missing = ObjectPath("default_database", "none")
    for call in (catalog.get_table, catalog.drop_table, catalog.get_function, catalog.drop_function):
        with pytest.raises(ValidationError, match=r"default_database\.none does not exist"):
            call(missing)
    catalog.drop_table(missing, ignore_if_not_exists=True)


def test_a_database_that_has_something_is_only_dropped_with_it() -> None:
    """With `cascade`."""
    catalog = Catalog("mine")
    catalog.create_database("db", CatalogDatabase.create_instance({"a": "b"}, "why"))
    catalog.create_table(ObjectPath("db", "t"), TABLE)
    with pytest.raises(ValidationError, match=r"Database db in Catalog mine is not empty: it has db\.t"):
        catalog.drop_database("db")
    catalog.drop_database("db", cascade=True)
    assert catalog.list_databases() == ["default_database"]


def test_names_are_completed_from_where_the_program_is() -> None:
    """One name, two, or three."""
    manager = manager_of(CUSTOMERS)
    manager.register_catalog("other", Catalog("other", "db"))
    assert manager.qualified(("t",)) == ("default_catalog", "default_database", "t")
    manager.use_catalog("other")
    assert manager.qualified(("t",)) == ("other", "db", "t")
    assert manager.qualified(("x", "t")) == ("other", "x", "t")
    assert manager.find(("customers",)) is None
    assert manager.find(("default_catalog", "default_database", "customers")) is not None
    with pytest.raises(ValidationError, match="currently in use"):
        manager.unregister_catalog("other")
    with pytest.raises(ValidationError, match="Catalog nowhere does not exist"):
        manager.use_catalog("nowhere")
    with pytest.raises(ValidationError, match="Database nowhere does not exist"):
        manager.use_database("nowhere")


def test_a_temporary_table_hides_that_of_the_catalog() -> None:
    """It has to be dropped before the other one can be."""
    manager = manager_of(CUSTOMERS, "CREATE TEMPORARY TABLE customers (a INT)")
    found = manager.find(("customers",))
    assert found is not None
    assert [column.name for column in found[1].schema.columns] == ["a"]
    assert manager.list_temporary() == ["customers"]
    with pytest.raises(ValidationError, match="Drop it first"):
        manager.drop(("customers",), is_view=False, is_temporary=False, if_exists=False)
    assert manager.drop(("customers",), is_view=False, is_temporary=True, if_exists=False)
    assert manager.drop(("customers",), is_view=False, is_temporary=False, if_exists=False)
    assert not manager.drop(("customers",), is_view=False, is_temporary=False, if_exists=True)
    with pytest.raises(ValidationError, match="does not exist"):
        manager.drop(("customers",), is_view=False, is_temporary=False, if_exists=False)


def test_a_view_is_its_query_where_it_was_made() -> None:
    """Its names are looked up in the catalog that was the current one then."""
    manager = manager_of(CUSTOMERS)
    create(manager, "CREATE VIEW romans (who) AS SELECT name FROM customers WHERE city = 'Rome'")
    manager.register_catalog("other", Catalog("other"))
    manager.use_catalog("other")
    plan = plan_query("SELECT * FROM default_catalog.default_database.romans", manager)
    assert plan.schema.names == ["who"]
    with pytest.raises(ValidationError, match="VIEW definition and input fields not match"):
        create(manager, "CREATE VIEW v (a, b) AS SELECT 1")


def test_paths() -> None:
    """They have an order, and a text."""
    assert ObjectPath.from_string("a.b") == ObjectPath("a", "b")
    assert ObjectPath("a", "b").compare_to(ObjectPath("a", "c")) < 0
    assert ObjectPath("a", "b").get_full_name() == "a.b"
