"""Scalar functions called once per row, plain or asynchronous.

A plain deterministic function is called once for each distinct value if a column has few of them. A function object
with `open` is called for every row, because it may count its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import CallTimeoutError, StopIterationRaised
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, Kernel
from penstock.table.user_functions.classes import Delegating
from penstock.table.user_functions.definition import FunctionKind, UserFunction
from penstock.table.user_functions.opened import OpenFunctions
from penstock.table.user_functions.values import Results, seen_values

#: batches of at most this many rows are not searched for distinct values
_FEW: Final = 16
#: takes the number of rows and the values of their operands, and returns the results
Caller = Callable[[int, Sequence[Sequence[Any]]], list[Any]]


def row_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> Kernel:
    """Return the kernel of a call with operands of these types. The kernel takes the number of rows first."""
    is_async = function.kind is FunctionKind.ASYNC_SCALAR
    caller = _awaiting(function, opened) if is_async else _calling(function, opened)
    results = Results(function.result_type, opened.zone)
    is_shared = function.is_deterministic and isinstance(function.function, Delegating)

    def column(rows: int, columns: Sequence[Datum]) -> pa.Array:
        operands = [seen_values(operand, kind, opened.zone, rows) for operand, kind in zip(columns, types, strict=True)]
        returned = caller(rows, operands)

        def refuse(row_index: int, value: object) -> None:
            opened.refuse(function, _record(operands, row_index), value, function.result_type)

        return results.column(returned, refuse)

    def kernel(rows: int, *columns: Datum) -> Datum:
        full = [index for index, operand in enumerate(columns) if isinstance(operand, pa.Array)]
        if is_shared and len(full) == 1 and rows > _FEW and _can_be_encoded(columns[full[0]].type):
            encoded = columns[full[0]].dictionary_encode(null_encoding="encode")
            if len(encoded.dictionary) <= rows // 2:
                distinct = [*columns[: full[0]], encoded.dictionary, *columns[full[0] + 1 :]]
                return column(len(encoded.dictionary), distinct).take(encoded.indices)
        return column(rows, columns)

    return kernel


def _can_be_encoded(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_null(data_type) and not pa.types.is_floating(data_type)


def _record(operands: Sequence[Sequence[Any]], row_index: int) -> tuple[Any, ...]:
    return tuple(operand[row_index] for operand in operands)


def _calling(function: UserFunction, opened: OpenFunctions) -> Caller:
    evaluate = opened.open(function).eval

    def call(rows: int, operands: Sequence[Sequence[Any]]) -> list[Any]:
        returned: list[Any] = []
        try:
            if operands:
                returned.extend(map(evaluate, *operands))
            else:
                returned.extend(evaluate() for _ in range(rows))
            if len(returned) < rows:
                raise StopIterationRaised
        except Exception as error:
            raise opened.failed(function, _record(operands, len(returned))) from error
        return returned

    return call


def _awaiting(function: UserFunction, opened: OpenFunctions) -> Caller:
    evaluate = opened.open(function).eval
    settings = opened.settings

    async def attempt(operands: tuple[Any, ...]) -> Any:
        try:
            async with asyncio.timeout(settings.timeout_ms / 1_000) as limit:
                return await evaluate(*operands)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise CallTimeoutError(
                f"a call took longer than {settings.timeout_ms} ms (table.exec.async-scalar.timeout)"
            ) from error

    async def one(operands: tuple[Any, ...], free: asyncio.Semaphore) -> Any:
        async with free:
            for left in reversed(range(settings.attempts_max)):
                try:
                    return await attempt(operands)
                except Exception as error:
                    if not left:
                        raise opened.failed(function, operands) from error
                await asyncio.sleep(settings.retry_delay_ms / 1_000)

    async def every(records: list[tuple[Any, ...]]) -> list[Any]:
        free = asyncio.Semaphore(settings.concurrent_max)
        calls = [asyncio.ensure_future(one(record, free)) for record in records]
        try:
            return list(await asyncio.gather(*calls))
        finally:
            for other in calls:
                other.cancel()

    def call(rows: int, operands: Sequence[Sequence[Any]]) -> list[Any]:
        records = list(zip(*operands, strict=True)) if operands else [()] * rows
        return list(opened.wait(every(records)))

    return call
