"""`EnvironmentSettings`: the settings of a table environment."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.base.options import RUNTIME_MODE
from penstock.sql.session.session import BUILT_IN_CATALOG, BUILT_IN_DATABASE

__all__ = ["EnvironmentSettings"]


class EnvironmentSettings:
    """The settings of a table environment: streaming or batch, options, and the built-in catalog and database.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> settings = EnvironmentSettings.new_instance().with_built_in_database_name("shop").build()
        >>> TableEnvironment.create(settings).get_current_database(), settings.is_streaming_mode()
        ('shop', True)
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = Configuration(configuration)

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """Return a builder; by default, queries run in streaming mode."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Return settings that run queries in streaming mode."""
        return EnvironmentSettings.new_instance().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Return settings that run queries in batch mode, over bounded tables."""
        return EnvironmentSettings.new_instance().in_batch_mode().build()

    def is_streaming_mode(self) -> bool:
        """Return whether queries run in streaming mode."""
        return self._configuration.read(RUNTIME_MODE) != "BATCH"

    def get_built_in_catalog_name(self) -> str:
        """Return the name of the built-in catalog."""
        return self._configuration.read(BUILT_IN_CATALOG)

    def get_built_in_database_name(self) -> str:
        """Return the name of the built-in database."""
        return self._configuration.read(BUILT_IN_DATABASE)

    def get_configuration(self) -> Configuration:
        """Return the options."""
        return self._configuration

    class Builder:
        """Collects settings. All methods except `build` return the builder itself."""

        def __init__(self) -> None:
            self._configuration = Configuration()

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            """Add options."""
            self._configuration.add_all(config)
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Run queries in batch mode."""
            self._configuration.write(RUNTIME_MODE, "BATCH")
            return self

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Run queries in streaming mode."""
            self._configuration.write(RUNTIME_MODE, "STREAMING")
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Set the name of the built-in catalog; the default is `default_catalog`."""
            self._configuration.write(BUILT_IN_CATALOG, built_in_catalog_name)
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Set the name of the built-in database; the default is `default_database`."""
            self._configuration.write(BUILT_IN_DATABASE, built_in_database_name)
            return self

        def build(self) -> EnvironmentSettings:
            """Return the settings."""
            return EnvironmentSettings(self._configuration)
