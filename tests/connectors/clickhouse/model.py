"""A model of a ClickHouse server that drops batches whose tokens it remembers, and the sinks that write into it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.clickhouse import ClickHouseSink, ClickHouseTable, InsertBatch, InsertSettings, ServerType

KINDS = {"n": ServerType.parse("Int64"), "key": ServerType.parse("Nullable(Int8)")}


class Server:
    """The table of the model.

    Attributes:
        rows: what was inserted, in order.
        before: called ahead of each insert, and behind it.
    """

    def __init__(self, window: int = 1_000, before: Callable[[], None] = lambda: None) -> None:
        self.rows: list[int] = []
        self.window = window
        self.before = before
        self.tokens: OrderedDict[str, None] = OrderedDict()

    def insert(self, batch: InsertBatch) -> None:
        self.before()
        if batch.token not in self.tokens:
            with pa.ipc.open_stream(batch.body) as stream:
                self.rows += stream.read_all().column("n").to_pylist()
            self.tokens[batch.token] = None
            while len(self.tokens) > self.window:
                self.tokens.popitem(last=False)
        self.before()

    def read_columns(self) -> dict[str, ServerType]:
        return KINDS

    def check_remembers_tokens(self) -> None:
        pass

    def close(self) -> None:
        pass


SERVERS: dict[str, Server] = {}


class ModelSink(ClickHouseSink):
    """Writes into the model with a name; pickled copies too."""

    def __init__(self, name: str, guarantee: DeliveryGuarantee, batch_rows: int = 3) -> None:
        table = ClickHouseTable("http://localhost:1", "default", name)
        super().__init__(table, guarantee, InsertSettings(batch_rows=batch_rows, retry_ms=1))

    def connect(self) -> Any:
        return SERVERS[self.table.table]
