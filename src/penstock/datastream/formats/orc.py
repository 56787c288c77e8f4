"""ORC files."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongValueError
from penstock.datastream.formats.table_rows import file_columns
from penstock.formats.orc import OrcFormat, OrcWriterFactory

__all__ = ["OrcBulkWriters", "OrcFormat", "OrcWriterFactory"]


class OrcBulkWriters:
    """Creates ORC writers for `FileSink.for_bulk_format`.

    Examples:
        >>> from pathlib import Path
        >>> import pyarrow.orc as orc
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.orc import OrcBulkWriters
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> files = FileSink.for_bulk_format("orders", OrcBulkWriters.for_row_type(row_type))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> orc.read_table(path).to_pylist()
        [{'drink': 'tea', 'cups': 2}]
    """

    @staticmethod
    def for_row_type(row_type: Any, writer_properties: Any = None, hadoop_config: Any = None) -> OrcWriterFactory:
        """Return a factory for writers of rows.

        Args:
            row_type: `DataTypes.ROW`, `Types.ROW_NAMED`, a dict from name to type, or an Arrow schema.
            writer_properties: a dict with `orc.compress` (NONE, ZLIB, SNAPPY, LZ4 or ZSTD) and `orc.stripe.size`
                (bytes).
            hadoop_config: must be None, because Hadoop is not used.

        Raises:
            ConfigurationError: if a type cannot be written, or `row_type` has no columns.
            NotImplementedError: if ORC cannot represent the type of a `DataTypes.ROW` column.
            ValueError: if `hadoop_config` is set, or a property is unknown.
        """
        if hadoop_config is not None:
            raise WrongValueError("Arrow writes ORC and takes no Hadoop configuration")
        properties = dict(writer_properties or {})
        compress = str(properties.pop("orc.compress", "ZLIB")).lower()
        stripe_bytes = properties.pop("orc.stripe.size", None)
        if properties:
            raise WrongValueError(f"Arrow writes ORC and does not know {', '.join(sorted(map(str, properties)))}")
        more = {} if stripe_bytes is None else {"stripe_bytes": int(stripe_bytes)}
        compression = "uncompressed" if compress == "none" else compress
        return OrcWriterFactory(file_columns(row_type, "ORC"), compression=compression, **more)
