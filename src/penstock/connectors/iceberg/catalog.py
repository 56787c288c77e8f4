"""Loaders of Iceberg catalogs and tables by name and properties, so that every process can load its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.connectors.extras import require

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


_LOG: Final = logging.getLogger("penstock.connectors.iceberg")


class MissingTableError(ConfigurationError):
    """The catalog does not contain this table."""


def require_library() -> None:
    """Check that pyiceberg is installed; raises `ConfigurationError` if not."""
    require("pyiceberg.io.pyarrow", "Iceberg", "pyiceberg", "iceberg")


@dataclass(frozen=True, slots=True)
class CatalogLoader:
    """Loads a catalog wherever it is needed. Its repr omits the properties.

    Attributes:
        name: the name of the catalog; pyiceberg adds its own configuration for a catalog of this name.
        properties: the properties for pyiceberg's `load_catalog`: `type` (`rest`, `sql`, `hive`, `glue`, …), `uri`,
            `warehouse`, `s3.endpoint` and so on.
    """

    name: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(name: str, properties: Mapping[str, str] | None = None) -> CatalogLoader:
        """Return a loader for a catalog with this name and properties; `catalog-type` is an alias of `type`."""
        remember(properties or {})
        normalized = {
            ("type" if key == "catalog-type" else key): str(value) for key, value in (properties or {}).items()
        }
        return CatalogLoader(name, tuple(sorted(normalized.items())))

    def load_catalog(self) -> Catalog:
        """Load the catalog; the caller closes it.

        Raises:
            ConfigurationError: if pyiceberg or a package for this kind of catalog is missing, or pyiceberg rejects the
                properties.
        """
        require_library()
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError

        try:
            return load_catalog(self.name, **dict(self.properties))
        except (NotInstalledError, ImportError) as error:
            raise ConfigurationError(
                f"pyiceberg cannot load catalog {self.name!r}: {error}. Install that here and on every worker"
            ) from error
        except ValueError as error:
            raise ConfigurationError(f"pyiceberg cannot load catalog {self.name!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class TableLoader:
    """Loads a catalog's table wherever it is needed.

    Attributes:
        catalog: loads the catalog.
        identifier: the namespaces of the table, and its name.
    """

    catalog: CatalogLoader
    identifier: tuple[str, ...]

    @staticmethod
    def from_catalog(catalog_loader: CatalogLoader, identifier: str | Sequence[str]) -> TableLoader:
        """Return a loader for a table, given as `"database.table"` or as a sequence of names.

        Raises:
            ConfigurationError: if the table has no namespace.
        """
        names = tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
        if len(names) < 2 or not all(names):
            raise ConfigurationError(
                f"a table of Iceberg is in a namespace: name it 'database.table', not {'.'.join(names)!r}"
            )
        return TableLoader(catalog_loader, names)

    @property
    def title(self) -> str:
        """The name of the table in error messages."""
        return ".".join((self.catalog.name, *self.identifier))

    @contextmanager
    def opened(self) -> Iterator[Table]:
        """Load the table, and keep its catalog open within the context.

        Raises:
            ConfigurationError: if the table does not exist.
            UnsupportedError: for a newer format version, or types that pyiceberg cannot read.
        """
        catalog = self.catalog.load_catalog()
        try:
            yield self.load_table(catalog)
        finally:
            catalog.close()

    def check_while_planning(self, check: Callable[[Table], None]) -> None:
        """Check the table while a statement is planned. A missing or unreachable table is left to the job."""
        try:
            with self.opened() as table:
                check(table)
        except MissingTableError:
            return
        except OSError as error:
            _LOG.warning("table %s could not be looked at while planning: %s", self.title, error)

    def load_table(self, catalog: Catalog) -> Table:
        """Load the table from an open catalog; raises as `opened`."""
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError as error:
            raise MissingTableError(f"there is no table {self.title}: create it, or name another one") from error
        except ValidationError as error:
            raise UnsupportedError(
                f"table {self.title} has what pyiceberg cannot read: {' '.join(str(error).split())[:300]}"
            ) from error
