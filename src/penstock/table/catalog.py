"""Catalogs and their objects: see `catalog`, `objects` and `columns`. `manager` finds tables for queries."""

from penstock.sql.catalogs.catalog import (
    Catalog,
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogModel,
    ObjectPath,
)
from penstock.sql.catalogs.columns import Column, ResolvedSchema, UniqueConstraint, WatermarkSpec

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogDatabase",
    "CatalogFunction",
    "CatalogModel",
    "Column",
    "ObjectPath",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]
