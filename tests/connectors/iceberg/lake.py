"""A catalog in SQLite with its tables in a directory, for tests: what programs are told of it, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from penstock.connectors.iceberg.tables import CatalogLoader, TableLoader


@dataclass(frozen=True)
class Lake:
    """Tables below a directory."""

    folder: Path
    #: where the tables are, if they are elsewhere
    warehouse: str = ""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": self.warehouse or f"file://{self.folder}/warehouse",
            **dict(self.more),
        }

    def create(self) -> Lake:
        """Make the catalog."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with CatalogLoader.of("lake", self.properties).load_catalog() as catalog:
            catalog.create_namespace_if_not_exists("db")
        return self

    def loader(self, name: str) -> TableLoader:
        return TableLoader.from_catalog(CatalogLoader.of("lake", self.properties), ("db", name))

    def table(self, name: str) -> Table:
        """As it is now; for looking at it."""
        with self.loader(name).opened() as table:
            return table

    def rows(self, name: str, *columns: str, branch: str = "main") -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        with self.loader(name).opened() as table:
            if table.metadata.snapshot_by_name(branch) is None:
                return []
            found = table.scan(selected_fields=columns or ("*",)).use_ref(branch).to_arrow()
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)

    def options(self, **more: str) -> str:
        """The options of a table in SQL."""
        told = {"connector": "iceberg", "catalog-name": "lake", "catalog-database": "db"}
        told |= {("catalog-type" if key == "type" else key): value for key, value in self.properties.items()}
        told |= {key.replace("_", "-"): value for key, value in more.items()}
        return ", ".join(f"'{key}' = '{value}'" for key, value in told.items())
