"""The conformance kit for connectors: runs any source or sink through restarts, rescaling, failures and closing.

>>> from penstock.datastream.connectors.number_seq import NumberSequenceSource
>>> from penstock.testing.connectors import SourceUnderTest, check_source
>>> report = check_source(lambda: SourceUnderTest(NumberSequenceSource(0, 9), range(10)))

`SourceRun` drives a source call by call, for tests of its own features.
"""

from penstock.testing.connectors.hosts import EnumeratorHost, ReaderHost, SinkHost
from penstock.testing.connectors.rules import SINK_RULES, SOURCE_RULES, ConformanceError
from penstock.testing.connectors.sink_kit import SINK_CASES, check_sink
from penstock.testing.connectors.sink_run import SinkCheckpoint, SinkRun, SinkUnderTest, last_of_each
from penstock.testing.connectors.source_kit import SOURCE_CASES, ConformanceReport, SourceUnderTest, check_source
from penstock.testing.connectors.source_run import SourceRun, SourceSnapshot, read_source

__all__ = [
    "SINK_CASES",
    "SINK_RULES",
    "SOURCE_CASES",
    "SOURCE_RULES",
    "ConformanceError",
    "ConformanceReport",
    "EnumeratorHost",
    "ReaderHost",
    "SinkCheckpoint",
    "SinkHost",
    "SinkRun",
    "SinkUnderTest",
    "SourceRun",
    "SourceSnapshot",
    "SourceUnderTest",
    "check_sink",
    "check_source",
    "last_of_each",
    "read_source",
]
