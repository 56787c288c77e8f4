"""Plans of queries over a few tables, for tests."""

from __future__ import annotations

from typing import Any

from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable
from penstock.sql.catalogs.ddl import build_catalog_table
from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.functions.definition import Session
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import Node
from penstock.sql.parser import parse_statement, statements
from penstock.sql.user_functions.declare import define

NOW_NS = 1_700_000_000_000_000_000
ORDERS = """
CREATE TABLE orders (
  id BIGINT NOT NULL, customer STRING, price DOUBLE, amount INT, ts TIMESTAMP(3), tags ARRAY<STRING>,
  place ROW<city STRING, street ROW<name STRING, number INT>>,
  WATERMARK FOR ts AS ts
)
"""
CUSTOMERS = "CREATE TABLE customers (name STRING NOT NULL, city STRING, since DATE, PRIMARY KEY (name) NOT ENFORCED)"


def manager_of(*ddl: str, **functions: Any) -> CatalogManager:
    """A manager that knows the tables of these statements, and functions by name."""
    manager = CatalogManager(
        Catalog(),
        lambda: Session(now=lambda: NOW_NS),
        lambda path, _: define(functions[path[-1]], path[-1]) if path[-1] in functions else None,
    )
    for text in ddl:
        create(manager, text)
    return manager


def create(manager: CatalogManager, ddl: str) -> None:
    """Run CREATE TABLE or CREATE VIEW."""
    statement = parse_statement(ddl)
    if isinstance(statement, statements.CreateView):
        plan = manager.analyser().query(statement.query)
        schema = manager.view_schema(plan, statement.columns)
        view = CatalogBaseTable(schema, query=statement.text, place=(manager.current_catalog, manager.current_database))
        manager.create(statement.path, view, statement.is_temporary)
        return
    assert isinstance(statement, statements.CreateTable)
    base = manager.find(statement.like.path) if statement.like is not None else None
    manager.create(statement.path, build_catalog_table(statement, base[1] if base else None), statement.is_temporary)


def plan_query(sql: str, manager: CatalogManager | None = None) -> Node:
    """The plan of a query over `orders` and `customers`."""
    statement = parse_statement(sql)
    assert isinstance(statement, statements.QueryStatement)
    return (manager or manager_of(ORDERS, CUSTOMERS)).analyser().query(statement.query)


def planned(sql: str) -> str:
    """The same as text, without the tables' catalog and database."""
    return plan_text(plan_query(sql)).replace("default_catalog.default_database.", "")


def list_columns(sql: str) -> list[str]:
    """The columns of a query: their names and types."""
    return [f"{column.name} {column}" for column in plan_query(sql).schema]
