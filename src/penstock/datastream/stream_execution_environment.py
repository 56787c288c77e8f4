"""Where programs begin and end, at PyFlink's place (E1)."""

from penstock.datastream.data_stream import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
