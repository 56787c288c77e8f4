"""`CatalogDescriptor`: the definition of a catalog in a program, as an alternative to CREATE CATALOG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.configuration import Configuration


@dataclass(frozen=True, slots=True)
class CatalogDescriptor:
    """The name, options and comment of a catalog. The option `type` selects the kind of catalog."""

    catalog_name: str
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """Return a catalog with these options."""
        return CatalogDescriptor(catalog_name, configuration.to_dict(), comment)

    def get_catalog_name(self) -> str:
        """Return the name."""
        return self.catalog_name

    def get_configuration(self) -> Configuration:
        """Return the options."""
        return Configuration.from_dict(self.options)

    def get_comment(self) -> str | None:
        """Return the comment, if there is one."""
        return self.comment

    def set_comment(self, comment: str) -> CatalogDescriptor:
        """Return a copy with a comment."""
        return CatalogDescriptor(self.catalog_name, self.options, comment)
