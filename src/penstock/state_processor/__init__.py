"""Lists, reads, bootstraps and rewrites savepoints, with states as Arrow, pandas or Spark tables (H5).

`SavepointReader.read(path)` opens a savepoint or checkpoint; `SavepointWriter` creates a new one, from scratch or from
an existing one. A job starts from it as from any other. See docs/savepoints.md.
"""

from penstock.state_processor.layouts import OperatorListing, StateListing
from penstock.state_processor.reader import SavepointReader, sign_savepoint
from penstock.state_processor.table import PICKLED, SavepointTable, decode
from penstock.state_processor.writer import SavepointWriter

__all__ = [
    "PICKLED",
    "OperatorListing",
    "SavepointReader",
    "SavepointTable",
    "SavepointWriter",
    "StateListing",
    "decode",
    "sign_savepoint",
]
