"""Cluster data sets, which Flink keeps of cached tables: Penstock has none, and says so in Flink's way."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.handlers.savepoints import DisposalState, Triggered


class DataSet(msgspec.Struct, frozen=True, rename="camel"):
    """One that is kept."""

    id: str
    is_complete: bool


class DataSets(msgspec.Struct, frozen=True, rename="camel"):
    """All of them."""

    data_sets: list[DataSet]


def data_sets(call: Call) -> DataSets:
    """There are none."""
    return DataSets([])


def delete(call: Call) -> Any:
    """There is none to delete."""
    raise not_found(f"Data set {call.path['datasetid']} not found")


def delete_state(call: Call) -> Any:
    """Nothing has begun to be deleted."""
    raise not_found(f"Operation not found under key: {call.path['triggerid']}")


ROUTES = [
    Route("GET", "/datasets", data_sets, "Cached data sets: none.", DataSets),
    Route("DELETE", "/datasets/:datasetid", delete, "Deletes a cached data set.", Triggered, 202, "changes"),
    Route(
        "GET", "/datasets/delete/:triggerid", delete_state, "What has become of that.", DisposalState, access="reveals"
    ),
]
