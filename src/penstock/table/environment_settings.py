"""`EnvironmentSettings`: what a table environment is made with."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.base.options import RUNTIME_MODE
from penstock.table.session.table_config import BUILT_IN_CATALOG, BUILT_IN_DATABASE

__all__ = ["EnvironmentSettings"]


class EnvironmentSettings:
    """What a table environment is made with: stream or batch, options, and the names of the first catalog."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = Configuration(configuration)

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """A builder; without more, queries run as streams."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Queries run as streams."""
        return EnvironmentSettings.new_instance().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Queries run as batches, over bounded tables."""
        return EnvironmentSettings.new_instance().in_batch_mode().build()

    def is_streaming_mode(self) -> bool:
        """Whether queries run as streams."""
        return self._configuration.read(RUNTIME_MODE) != "BATCH"

    def get_built_in_catalog_name(self) -> str:
        """The name of the catalog that is there from the beginning."""
        return self._configuration.read(BUILT_IN_CATALOG)

    def get_built_in_database_name(self) -> str:
        """The name of the database that is there from the beginning."""
        return self._configuration.read(BUILT_IN_DATABASE)

    def get_configuration(self) -> Configuration:
        """The options."""
        return self._configuration

    class Builder:
        """Collects settings. All methods but `build` give the builder itself."""

        def __init__(self) -> None:
            self._configuration = Configuration()

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            """Add options."""
            self._configuration.add_all(config)
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Queries run as batches."""
            self._configuration.write(RUNTIME_MODE, "BATCH")
            return self

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Queries run as streams."""
            self._configuration.write(RUNTIME_MODE, "STREAMING")
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Name the catalog that is there from the beginning; `default_catalog` otherwise."""
            self._configuration.write(BUILT_IN_CATALOG, built_in_catalog_name)
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Name the database that is there from the beginning; `default_database` otherwise."""
            self._configuration.write(BUILT_IN_DATABASE, built_in_database_name)
            return self

        def build(self) -> EnvironmentSettings:
            """The settings."""
            return EnvironmentSettings(self._configuration)
