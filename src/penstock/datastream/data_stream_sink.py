"""The end of a stream, with its name and settings."""

from __future__ import annotations

from penstock.datastream.operator_settings import OperatorSettings
from penstock.plan.transformation import Transformation

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """The end of a stream; its methods set its name and other settings."""

    def __init__(self, transformation: Transformation) -> None:
        self._sink = transformation

    @property
    def _transformation(self) -> Transformation:
        return self._sink
