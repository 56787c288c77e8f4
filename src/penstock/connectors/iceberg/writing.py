"""Writes rows as data files with pyiceberg's own writer: partitioned, with field ids and column metrics."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

LOG = logging.getLogger("penstock.connectors.iceberg")


class FileWriting:
    """Writes data files of a table, under unique names."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._metadata = metadata
        self._io = io
        self._uuid = uuid.uuid4()
        self._counter = itertools.count()

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows to data files: one per partition, unless it would exceed the table's target size."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if not rows.num_rows:
            return []
        files = list(
            _dataframe_to_data_files(
                table_metadata=self._metadata, df=rows, io=self._io, write_uuid=self._uuid, counter=self._counter
            )
        )
        for file in files:
            file.spec_id = self._metadata.default_spec_id
        return files


def remove(io: FileIO, paths: Iterable[str]) -> None:
    """Remove files that are not in the table, as far as possible."""
    for path in paths:
        try:
            io.delete(path)
        except Exception as error:  # noqa: BLE001 - what stays is an orphan, which does no harm
            LOG.warning("%s is not in the table and could not be removed: %s", path, error)
