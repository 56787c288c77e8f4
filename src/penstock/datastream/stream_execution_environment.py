"""The entry point of programs, under PyFlink's module name (E1)."""

from penstock.datastream.data_stream import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
