"""Kinds of records travel with them, wherever records are split, joined, sent, exchanged or stored (B3)."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import count, repeat
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.base.errors import ProtocolError, UnsupportedError
from penstock.base.types import Row, RowKind
from penstock.common import Types
from penstock.runtime.batch.exchange import BatchExchange, KeyedExchange, Places, Rows, loads_batch, process_with_key
from penstock.runtime.columns import ColumnBatch, ColumnKey, as_columns, col, get_row_kinds, lit, make_batch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.columnar.column_operators import MapBatchesOperator, WhereOperator
from penstock.runtime.operators.columnar.windows import ColumnarWindowOperator
from penstock.runtime.operators.emitting import emitting_rows, emitting_singles
from penstock.runtime.records import Batch, Event
from penstock.runtime.task.channels.in_flight import capture_channel
from penstock.runtime.task.channels.result_partition import (
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    Subpartition,
)
from penstock.runtime.windowing import TumblingEventTimeWindows
from penstock.storage.metadata import ChannelState, Direction
from penstock.testing import OneInputOperatorHarness
from penstock.wire.buffers import FRAME_BYTES_MIN, BufferCodec, decode_batches

KINDS = list(RowKind)
FORMS = ["tuples", "rows", "columns"]


def create_batch(form: str, pairs: list[tuple[int, int]], timed: bool = True) -> Batch:
    """Records (key, number) with kinds, as tuples, rows or columns."""
    times = list(range(len(pairs))) if timed else None
    kinds = bytes(kind for _, kind in pairs)
    records = [(key, number) for number, (key, _) in enumerate(pairs)]
    if form == "tuples":
        return Batch(records, times, kinds)
    if form == "rows":
        rows = [Row.of_kind(KINDS[k], key=key, number=n) for (key, n), k in zip(records, kinds, strict=True)]
        return Batch(rows, times)
    columns = pa.RecordBatch.from_arrays(
        [pa.array([key for key, _ in records], pa.int64()), pa.array([n for _, n in records], pa.int64())],
        ["key", "number"],
    )
    return ColumnBatch(columns, None if times is None else np.array(times, np.int64), kinds)


def shown(batch: Batch) -> list[tuple[int, int, int | None, int]]:
    """(key, number, timestamp, kind) of each record."""
    kinds = get_row_kinds(batch) or bytes(len(batch))
    times: Any = batch.timestamps or repeat(None, len(batch))
    return [(*tuple(value), t, kind) for value, t, kind in zip(batch.values, times, kinds, strict=True)]


pairs = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(range(4))), min_size=1, max_size=40)
batches = st.builds(create_batch, st.sampled_from(FORMS), pairs, st.booleans())


def first(value: Any) -> Any:
    return value[0]


@given(batches, st.sampled_from([1, 2, 5, 20]), st.booleans())
def test_partitioners_deal_kinds_out_with_their_records(batch: Batch, channels: int, by_key: bool) -> None:
    """B3: by key, with few channels and with many, and round robin; order within a channel stays."""
    key: Any = ColumnKey(("key",)) if isinstance(batch, ColumnBatch) else first
    partitioner: Partitioner = HashPartitioner(key) if by_key else RebalancePartitioner()
    partitioner.set_up(0, channels, 128)
    parts = partitioner.split(batch)
    assert sorted(record for _, part in parts for record in shown(part)) == sorted(shown(batch))
    for _, part in parts:
        numbers = [number for _, number, *_ in shown(part)]
        assert numbers == sorted(numbers)


@given(st.lists(batches, min_size=1, max_size=6), st.integers(1, 100))
def test_buffers_of_channels_keep_kinds(sent: list[Batch], buffer_records: int) -> None:
    """B3: batches that are cut or made into one."""
    came: list[Any] = []
    channel = Subpartition((0, 0, 0), "w", lambda worker, channel, buffer: came.extend(buffer), buffer_records)  # type: ignore[arg-type]
    for batch in sent:
        channel.add_batch(batch)
    channel.grant(1_000)
    channel.flush()
    assert [r for batch in came for r in shown(batch)] == [r for batch in sent for r in shown(batch)]


@given(st.lists(batches, min_size=1, max_size=6), st.sampled_from([FRAME_BYTES_MIN, 1 << 20]))
def test_the_wire_keeps_kinds(sent: list[Batch], frame_bytes: int) -> None:
    """B3: in one message and in several."""
    wide = [batch.slice(0, len(batch)) for batch in sent for _ in range(20)]
    codec: BufferCodec[Any] = BufferCodec(Event, Batch, make_batch, frame_bytes)
    joined: list[Any] = []
    for part in codec.encode(wide):
        codec.decode(part.outline, [bytes(frame) for frame in part.payload], joined)
    assert [r for batch in joined for r in shown(batch)] == [r for batch in wide for r in shown(batch)]


@pytest.mark.parametrize("kinds", [b"", b"\0\0", b"\4", b"\xff"])
def test_bytes_that_are_no_kinds_break_the_protocol(kinds: bytes) -> None:
    """B3: too few, too many, or unknown ones."""
    with pytest.raises(ProtocolError, match="not a batch of 1 records"):
        decode_batches([pickle.dumps([([1], None, kinds)])], [1])


@given(batches)
def test_records_in_flight_keep_kinds(batch: Batch) -> None:
    """G5: in an unaligned checkpoint, and out of it."""
    capture = capture_channel(ChannelState(Direction.IN, 0, 0), [batch])
    assert capture is not None
    (item,) = capture.items
    assert shown(make_batch(*pickle.loads(item))) == shown(batch)


@given(batches)
def test_exchanges_of_batches_keep_kinds(batch: Batch) -> None:
    """I1: whole batches."""
    rows = Rows()
    partitioner = RebalancePartitioner()
    partitioner.set_up(0, 3, 128)
    BatchExchange(0, rows, count(), partitioner, range(3)).collect(batch)
    assert sorted(r for payload in rows.payloads for r in shown(loads_batch(payload))) == sorted(shown(batch))


@given(st.lists(batches, min_size=1, max_size=4))
def test_exchanges_by_key_keep_kinds(sent: list[Batch]) -> None:
    """I1: a row for each record, also where some have kinds beside them, some within, and some none."""
    rows = Rows()
    sent = [*sent, Batch([(1, -1)], [5]), Batch([(1, -2)])]
    exchange = KeyedExchange(0, rows, count(), HashPartitioner(first), Places(2, 8), "Consumer")
    for batch in sent:
        exchange.collect(batch)
    came: list[Batch] = []
    process_with_key(rows, 0, len(rows), {0: 0}, lambda batch, _: came.append(batch))
    expected = [(key, number, time, kind) for batch in sent for key, number, time, kind in shown(batch)]
    assert [_plain(record) for batch in came for record in _shown_one_by_one(batch)] == expected


def _shown_one_by_one(batch: Batch) -> Any:
    """Rows and tuples may be mixed here."""
    times: Any = batch.timestamps or repeat(None, len(batch))
    for place, (value, time) in enumerate(zip(batch.values, times, strict=True)):
        own = value.get_row_kind().value if isinstance(value, Row) else 0
        yield value, time, own if batch.kinds is None else batch.kinds[place]


def _plain(record: Any) -> Any:
    value, time, kind = record
    return (*tuple(value), time, kind)


def test_kinds_do_not_go_through_an_exchange_that_does_not_carry_them() -> None:
    """I1: where Spark carries the records it is said, not lost."""
    exchange = KeyedExchange(0, Rows(), count(), HashPartitioner(first), Places(2, 8), "Sum", has_payloads=False)
    exchange.collect(Batch([(1, 2)]))
    with pytest.raises(UnsupportedError, match="Sum: records with row kinds"):
        exchange.collect(Batch([(1, 2)], None, b"\3"))


def test_rows_show_their_kinds_however_they_travelled() -> None:
    """B3: made of columns; and columns made of rows know them."""
    columns = create_batch("columns", [(1, 3), (2, 0), (3, 1), (4, 2)])
    kinds = [row.get_row_kind() for row in columns.values]
    assert kinds == [RowKind.DELETE, RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    rows = Batch(columns.values, columns.timestamps)
    assert as_columns(rows, "Owner").kinds == columns.kinds
    assert [str(row)[:2] for row in columns.slice(2, 4).values] == ["-U", "+U"]
    assert as_columns(Batch([Row(a=1)]), "Owner").kinds is None


def test_batches_without_kinds_are_stored_and_sent_as_before() -> None:
    """B3: two parts, nothing beside."""
    assert len(Batch([1], [2]).content()) == 2
    assert len(ColumnBatch(pa.RecordBatch.from_pydict({"a": [1]})).content()) == 2
    assert repr(Batch([1])) == "Batch([1], None)"
    assert Batch([1], None, b"\3") != Batch([1])


@pytest.mark.parametrize("form", FORMS)
def test_a_condition_keeps_the_kinds_of_what_it_keeps(form: str) -> None:
    batch = create_batch(form, [(1, 3), (2, 0), (3, 1)])
    condition = col("f0" if form == "tuples" else "key") > lit(1)
    with OneInputOperatorHarness(lambda: WhereOperator(condition)) as harness:
        came: list[Batch] = []
        harness.operator.output = _Into(came)  # type: ignore[assignment]
        harness.operator.process_batch(batch)
    assert [(key, kind) for batch in came for key, _, _, kind in shown(batch)] == [(2, 0), (3, 1)]


def test_an_operator_whose_output_type_is_declared_keeps_kinds() -> None:
    """B3: what becomes rows shows them; what stays a tuple has them beside it."""

    class Emits(StreamOperator):
        def process_batch(self, batch: Batch, input_index: int = 0) -> None:
            self.output.collect(batch)

    tuples = create_batch("tuples", [(1, 3), (2, 0)])
    for type_info, kinds in ((Types.ROW([Types.INT(), Types.INT()]), None), (Types.FLOAT(), tuples.kinds)):
        make: Any = emitting_rows if kinds is None else emitting_singles
        operator: Any = make(Emits, type_info)
        came: list[Batch] = []
        operator.setup(None, _Into(came))
        operator.output.collect(tuples if kinds is None else Batch([1.5, 2.5], None, tuples.kinds))
        (batch,) = came
        assert batch.kinds == kinds
        assert get_row_kinds(batch) == tuples.kinds


def _same(operator: Any) -> Any:
    return operator


class _Into:
    def __init__(self, came: list[Batch]) -> None:
        self.came = came

    def collect(self, batch: Batch) -> None:
        self.came.append(batch)


def test_what_takes_inserts_only_says_so() -> None:
    """B3: an aggregate that would count a delete as a record, and a function that would not see it."""
    batch = create_batch("columns", [(1, 3)])
    windows = ColumnarWindowOperator(ColumnKey(("key",)), TumblingEventTimeWindows(10), [lit(1).count])
    operators: list[Any] = [windows, MapBatchesOperator(lambda columns: columns, "arrow", None)]
    for operator in operators:
        with (
            OneInputOperatorHarness(partial(_same, operator)) as harness,
            pytest.raises(UnsupportedError, match="inserts only"),
        ):
            harness.operator.process_batch(batch)
