"""Cached streams: their records are kept once computed, for later jobs of the same environment."""

from __future__ import annotations

import logging
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.cached import CachedSource, CachingSink, is_whole, remove_cached
from penstock.connectors.file.filesystem import absolute_path, join
from penstock.drivers.directories import directory_of_this_process
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.connector import Boundedness
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.record.stateless import PassOnOperator

if TYPE_CHECKING:
    from concurrent.futures import Future

_log = logging.getLogger("penstock.cache")


class Cache:
    """The cache of one stream. Its transformation passes records on; once they are stored, it is a source."""

    def __init__(self, inputs: tuple[Upstream, ...], parent_directory: str | None) -> None:
        _check_bounded(inputs)
        self._inputs = inputs
        self._directory = _new_directory(parent_directory)
        first = self._inputs[0].transformation
        self.transformation = Transformation(
            "Cache",
            PassOnOperator,
            self._inputs,
            # same as the cached stream: without redistribution, records keep their order
            parallelism=first.parallelism or (1 if first.parallelism_limit == 1 else None),
            output_type=first.output_type,
        )
        self._writer: Future[Any] | None = None
        self._whole = False

    @property
    def is_complete(self) -> bool:
        """Whether a job has written all records to a place that this process can read."""
        writer = self._writer
        if self._whole:
            return True
        if writer is None or not writer.done():
            return False
        if writer.cancelled() or writer.exception() is not None:
            self._writer = None
            return False
        if not is_whole(self._directory):
            _log.warning("%s does not hold all cached records, so the job computes them again", self._directory)
            self._writer = None
            return False
        self._whole = True
        return True

    def plan(self) -> Transformation | None:
        """Prepare the transformation for the next job; return the sink that stores the records, if one is needed.

        While one job writes them, other jobs compute the stream and store nothing.
        """
        transformation = self.transformation
        if self.is_complete:
            source = CachedSource(self._directory)
            transformation.inputs, transformation.source, transformation.is_stateful = (), source, True
            transformation.node = partial(SourceOperator, source, WatermarkStrategy.no_watermarks())
            return None
        transformation.inputs, transformation.source, transformation.is_stateful = self._inputs, None, False
        transformation.node = PassOnOperator
        if self._writer is not None:
            return None
        sink = CachingSink(self._directory)
        inputs = (Upstream(transformation),)
        return Transformation("Cache Writer", partial(SinkOperator, sink), inputs, is_stateful=True, sink=sink)

    def set_writer(self, result: Future[Any]) -> None:
        """Set the outcome of the job that writes the records, once it has started."""
        self._writer = result

    def invalidate(self) -> None:
        """Forget and delete the records."""
        self._writer, self._whole = None, False
        remove_cached(self._directory)


def _new_directory(parent: str | None) -> str:
    if parent is None:
        return directory_of_this_process("penstock-cache-")
    name = tempfile.mktemp(prefix="cache-", dir="").lstrip("/")
    return join(absolute_path(parent), name)


def _check_bounded(inputs: tuple[Upstream, ...]) -> None:
    waiting = [upstream.transformation for upstream in inputs]
    while waiting:
        transformation = waiting.pop()
        waiting += [upstream.transformation for upstream in transformation.inputs]
        source = transformation.source
        if source is not None and source.boundedness is not Boundedness.BOUNDED:
            raise UnsupportedError(
                f"source {transformation.display_name!r} never ends, and only bounded streams can be cached"
            )
