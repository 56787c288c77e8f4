"""What a connector of tables is: how a table is read and how it is written, by its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from penstock.table.connectors.lookup import TableLookup
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Scan, Write

CONNECTOR = "connector"


class TableConnector:
    """The base of all. A connector that only reads, or only writes, leaves out the other method."""

    #: what the option `connector` says
    name: ClassVar[str]
    #: the options that it takes, besides `connector`
    options: ClassVar[frozenset[str]] = frozenset()

    def reader(self, scan: Scan, options: Mapping[str, str]) -> TableReader:
        """How a table is read."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a sink. It cannot be used as a source: "
            f"table {'.'.join(scan.path)}"
        )

    def lookup(self, scan: Scan, key: Sequence[int], options: Mapping[str, str]) -> TableLookup:
        """How the rows of keys are found. `key`: the places of their columns in the table."""
        raise ValidationError(
            f"Connector '{self.name}' cannot be asked for the rows of keys, so table {'.'.join(scan.path)} cannot be "
            "joined FOR SYSTEM_TIME AS OF a processing time: use a connector that has a look-up"
        )

    def writer(self, write: Write, options: Mapping[str, str]) -> TableWriter:
        """How a table is written."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a source. It cannot be used as a sink: "
            f"table {'.'.join(write.path)}"
        )

    def check(self, path: tuple[str, ...], options: Mapping[str, str]) -> None:
        """Refuse options that it does not take."""
        unknown = sorted(options.keys() - self.options - {CONNECTOR})
        if unknown:
            known = ", ".join(sorted(self.options | {CONNECTOR}))
            raise ValidationError(
                f"Unsupported options found for '{self.name}' of table {'.'.join(path)}: {', '.join(unknown)}. "
                f"Supported options: {known}"
            )


class Connectors:
    """Connectors by their names."""

    def __init__(self, *connectors: TableConnector) -> None:
        self._connectors = {one.name: one for one in connectors}

    def reader(self, scan: Scan) -> TableReader:
        """How a table is read. Raises `ValidationError` for options that no connector takes."""
        options = dict(scan.options)
        return self._find(scan.path, options).reader(scan, options)

    def lookup(self, scan: Scan, key: Sequence[int]) -> TableLookup:
        """How the rows of keys are found. Raises `ValidationError` for connectors that cannot be asked."""
        options = dict(scan.options)
        return self._find(scan.path, options).lookup(scan, key, options)

    def writer(self, write: Write) -> TableWriter:
        """How a table is written. Raises `ValidationError` for options that no connector takes."""
        options = dict(write.options)
        return self._find(write.path, options).writer(write, options)

    def _find(self, path: tuple[str, ...], options: Mapping[str, str]) -> TableConnector:
        title = ".".join(path)
        name = options.get(CONNECTOR)
        known = ", ".join(sorted(self._connectors))
        if name is None:
            raise ValidationError(
                f"Table options of {title} do not contain an option key 'connector' for discovering a connector. "
                f"Set it in WITH; there are {known}"
            )
        if name not in self._connectors:
            raise ValidationError(f"Could not find any connector '{name}' for table {title}: there are {known}")
        found = self._connectors[name]
        found.check(path, options)
        return found
