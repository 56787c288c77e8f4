"""Catalogs and their objects: see `catalog`, `objects` and `columns`. `manager` finds tables for queries."""

from penstock.table.catalog.catalog import Catalog
from penstock.table.catalog.columns import Column, ResolvedSchema, UniqueConstraint, WatermarkSpec
from penstock.table.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogDatabase",
    "CatalogFunction",
    "Column",
    "ObjectPath",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]
