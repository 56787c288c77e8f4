"""The end of a stream, to be named and set up."""

from __future__ import annotations

from penstock.datastream.operator_settings import OperatorSettings
from penstock.plan.transformation import Transformation

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """The end of a stream, to be named and set up."""

    def __init__(self, transformation: Transformation) -> None:
        self._sink = transformation

    @property
    def _transformation(self) -> Transformation:
        return self._sink
