"""A split for a reader that was told of the end is an error: the reader may have ended, and would never read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import PenstockError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.hybrid import HybridSource
from penstock.connectors.split_reader import PositionedReader
from penstock.runtime.connector import Boundedness, Source, SplitEnumerator
from penstock.runtime.records import Batch


class Reader(PositionedReader[int]):
    def read(self, split: int, max_records: int) -> tuple[Batch, int] | None:
        return (Batch([split]), -1) if split >= 0 else None


class Enumerator(SplitEnumerator[int]):
    """Says that there is no more, and then, when it likes, hands out a split."""

    def __init__(self, context: Any, is_late: bool) -> None:
        self.context = context
        self.is_late = is_late

    def start(self) -> None: ...

    def handle_split_request(self, subtask_index: int) -> None:
        if not self.is_late:
            self.context.assign_split(7, subtask_index)
        self.context.signal_no_more_splits(subtask_index)
        if self.is_late:
            self.context.assign_split(7, subtask_index)

    def add_splits_back(self, splits: Sequence[int], subtask_index: int) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return None


class Late(Source[Any, int]):
    boundedness = Boundedness.BOUNDED

    def __init__(self, is_late: bool = True) -> None:
        self.is_late = is_late

    def create_enumerator(self, context: Any, restored: Any | None) -> SplitEnumerator[int]:
        return Enumerator(context, self.is_late)

    def create_reader(self, context: Any) -> Reader:
        return Reader(context)


def run(source: Source[Any, Any], mode: str) -> list[Any]:
    environment = local_environment(execution__runtime_mode=mode)
    environment.set_restart_strategy(RestartStrategies.no_restart())
    return collect(environment.from_source(source, WatermarkStrategy.no_watermarks(), "late"))


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a hybrid source"])
def test_a_split_after_the_end_fails_the_job_and_names_the_source(mode: str, nested: bool) -> None:
    """I1, G1: nothing is lost without a word, in streaming and when splits are dealt ahead."""
    source = Late()
    with pytest.raises(PenstockError, match=r"enumerator of Late .*subtask 0 after signal_no_more_splits"):
        run(HybridSource.builder(source).add_source(Late(False)).build() if nested else source, mode)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_the_same_source_in_order_is_read(mode: str) -> None:
    """I1: the split first, then the end."""
    assert run(Late(False), mode) == [7]
