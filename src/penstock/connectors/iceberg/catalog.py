"""Where tables of Iceberg are: catalogs and tables by names and properties, which every process loads for itself."""

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
    """A catalog has no such table."""


def require_library() -> None:
    """Check that pyiceberg is there; raises `ConfigurationError` if not."""
    require("pyiceberg.io.pyarrow", "Iceberg", "pyiceberg", "iceberg")


@dataclass(frozen=True, slots=True)
class CatalogLoader:
    """Loads a catalog wherever it is needed. What is shown of it are the names of its properties, not their values.

    Attributes:
        name: of the catalog; pyiceberg adds what its own configuration says of a catalog of this name.
        properties: as pyiceberg's `load_catalog` takes them: `type` (`rest`, `sql`, `hive`, `glue`, …), `uri`,
            `warehouse`, `s3.endpoint` and so on.
    """

    name: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(name: str, properties: Mapping[str, str] | None = None) -> CatalogLoader:
        """A loader for a catalog of this name with these properties; `catalog-type` is another name for `type`."""
        remember(properties or {})
        found = {("type" if key == "catalog-type" else key): str(value) for key, value in (properties or {}).items()}
        return CatalogLoader(name, tuple(sorted(found.items())))

    def load_catalog(self) -> Catalog:
        """The catalog, which the caller closes.

        Raises:
            ConfigurationError: without pyiceberg or what it needs for this kind of catalog, or for properties that it
                does not take.
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
    """Loads a table of a catalog wherever it is needed.

    Attributes:
        catalog: loads the catalog.
        identifier: the namespaces of the table, and its name.
    """

    catalog: CatalogLoader
    identifier: tuple[str, ...]

    @staticmethod
    def from_catalog(catalog_loader: CatalogLoader, identifier: str | Sequence[str]) -> TableLoader:
        """A loader for a table: `"database.table"`, or the names one by one.

        Raises:
            ConfigurationError: for a table without a namespace.
        """
        names = tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
        if len(names) < 2 or not all(names):
            raise ConfigurationError(
                f"a table of Iceberg is in a namespace: name it 'database.table', not {'.'.join(names)!r}"
            )
        return TableLoader(catalog_loader, names)

    @property
    def title(self) -> str:
        """The table, as errors name it."""
        return ".".join((self.catalog.name, *self.identifier))

    @contextmanager
    def opened(self) -> Iterator[Table]:
        """The table, with its catalog open meanwhile.

        Raises:
            ConfigurationError: if there is no such table.
            UnsupportedError: for a table of a later version of the format, or with types that pyiceberg cannot read.
        """
        catalog = self.catalog.load_catalog()
        try:
            yield self.load_table(catalog)
        finally:
            catalog.close()

    def check_while_planning(self, check: Callable[[Table], None]) -> None:
        """Check the table while a statement is planned. A table that is missing or away is left to the job."""
        try:
            with self.opened() as table:
                check(table)
        except MissingTableError:
            return
        except OSError as error:
            _LOG.warning("table %s could not be looked at while planning: %s", self.title, error)

    def load_table(self, catalog: Catalog) -> Table:
        """The table of a catalog that is open; raises as `opened`."""
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError as error:
            raise MissingTableError(f"there is no table {self.title}: create it, or name another one") from error
        except ValidationError as error:
            raise UnsupportedError(
                f"table {self.title} has what pyiceberg cannot read: {' '.join(str(error).split())[:300]}"
            ) from error
