"""Splits that are dealt out once for a batch, or as each epoch begins."""

from __future__ import annotations

from typing import Any

from penstock.runtime.batch.exchange import SplitDealer
from penstock.runtime.connector import Boundedness, Source, SplitEnumerator


class Looking(Source[Any, Any]):
    """Its enumerator looks for something new again and again, a millisecond after the last look."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self) -> None:
        self.looks = 0

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return _LookingEnumerator(self, context)

    def create_reader(self, context: Any) -> Any:
        raise NotImplementedError


class _LookingEnumerator(SplitEnumerator[Any]):
    def __init__(self, source: Looking, context: Any) -> None:
        self.source, self.context = source, context

    def start(self) -> None:
        self.context.call_async(lambda: None, self._looked)

    def _looked(self, found: None, error: BaseException | None) -> None:
        self.source.looks += 1
        assert self.source.looks < 10
        self.context.call_async(lambda: None, self._looked, 1)

    def handle_split_request(self, subtask_index: int) -> None: ...

    def add_splits_back(self, splits: Any, subtask_index: int) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> None: ...

    def close(self) -> None: ...


def test_what_is_to_be_done_later_is_done_once_in_each_epoch() -> None:
    """However soon that is."""
    source = Looking()
    dealer = SplitDealer(source, 1, None)
    for epoch in range(1, 4):
        assert source.looks == epoch
        assert dealer.deal() == [()]
    dealer.close()
