"""Each epoch of a stream once into a Delta table, by Delta Lake's format of Spark: `DeltaEpochWriter`.

Delta Lake makes a write idempotent by an application's name and a number: it leaves out a write whose number is not
above the last one of that name, without an error. Epochs are numbered from 1 in each job that starts from nothing, and
a job that starts from an older savepoint repeats numbers with other rows. Under a name that another job has used, their
rows would be lost. So each commit also has the id of its epoch, in `userMetadata`. If the table does not have the id
after the write, Delta Lake has left out the epoch, and the job fails before anything counts as written.

Only numbers that are not above those that this process has written can be left out, so in a job that goes well the
history is read once, after its first epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.errors import ConfigurationError, OperationError
from penstock.drivers.spark.foreach_batch import current_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Delta Lake's options of a write
_NAME, _NUMBER, _NOTE = "txnAppId", "txnVersion", "userMetadata"


class DeltaEpochWriter:
    """Writes each epoch once into a Delta table, by Spark; pass it to `for_each_batch`.

    Spark needs Delta Lake's jar, and its extension and catalog in `spark.sql.extensions` and
    `spark.sql.catalog.spark_catalog`. Tried with Spark 4.0.

    Args:
        name: the name of the output. A table keeps the epochs of each name apart: two outputs have different ones, and
            so has a job that starts from nothing.
        path: the directory or URL of the table.
        options: further options of Delta Lake's writer.
        mode: `append`, or `overwrite` to replace the rows of the table with those of each epoch.

    Raises:
        ConfigurationError: for wrong arguments. When it writes: if no epoch is being written.
        OperationError: when it writes: if Delta Lake leaves out an epoch that the table does not have.

    Examples:
        >>> from penstock.datastream.connectors.spark import DeltaEpochWriter
        >>> DeltaEpochWriter("totals", "/lake/totals")
        DeltaEpochWriter('totals', '/lake/totals')
    """

    def __init__(self, name: str, path: str, options: Mapping[str, str] | None = None, mode: str = "append") -> None:
        if not name or not path:
            raise ConfigurationError(f"a Delta output needs a name and a path, not {name!r} and {path!r}")
        if mode not in ("append", "overwrite"):
            raise ConfigurationError(f"the Delta output {name!r} has the mode append or overwrite, not {mode!r}")
        self._options = dict(options or {})
        reserved = {_NAME.lower(), _NUMBER.lower(), _NOTE.lower()} & {key.lower() for key in self._options}
        if reserved:
            raise ConfigurationError(f"the Delta output {name!r} sets the option {min(reserved)!r} itself")
        self._name, self._path, self._mode = name, path, mode
        #: the number of the last epoch that the table has for sure
        self._written: int | None = None

    def __repr__(self) -> str:
        return f"DeltaEpochWriter({self._name!r}, {self._path!r})"

    __name__ = "DeltaEpochWriter"

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Write an epoch, unless the table has it."""
        identity = current_epoch()
        if identity is None:
            raise ConfigurationError(f"{self!r} writes epochs: pass it to for_each_batch(), or call it in its function")
        note = f"penstock epoch {identity.id}"
        options = {**self._options, _NAME: self._name, _NUMBER: str(identity.number), _NOTE: note}
        frame.write.format("delta").mode(self._mode).options(**options).save(self._path)
        if self._written is None or identity.number <= self._written:
            quoted = self._path.replace("`", "``")
            history = frame.sparkSession.sql(f"DESCRIBE HISTORY delta.`{quoted}`")
            if not history.where(f"userMetadata = '{note}'").take(1):
                raise OperationError(
                    f"Delta Lake left out epoch {identity.number} of the output {self._name!r}: the table {self._path} "
                    "has epochs with this number or later ones under this name, of another job or of a later "
                    "savepoint. Give the output a new name (sink.transaction-name, or that of the DeltaEpochWriter), "
                    "and start the job again from its last checkpoint or savepoint: no row is lost"
                )
        self._written = identity.number
