"""Cluster data sets, Flink's store for cached tables. Penstock keeps none, and answers as Flink does without any."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.handlers.savepoints import DisposalState, Triggered


class DataSet(msgspec.Struct, frozen=True, rename="camel"):
    """A cached data set."""

    id: str
    is_complete: bool


class DataSets(msgspec.Struct, frozen=True, rename="camel"):
    """All cached data sets."""

    data_sets: list[DataSet]


def data_sets(call: Call) -> DataSets:
    """Return an empty list."""
    return DataSets([])


def delete(call: Call) -> Any:
    """Answer 404, because no data set exists."""
    raise not_found(f"Data set {call.path['datasetid']} not found")


def delete_state(call: Call) -> Any:
    """Answer 404, because no deletion was started."""
    raise not_found(f"Operation not found under key: {call.path['triggerid']}")


ROUTES = [
    Route("GET", "/datasets", data_sets, "Cached data sets: none.", DataSets),
    Route("DELETE", "/datasets/:datasetid", delete, "Deletes a cached data set.", Triggered, 202, "changes"),
    Route(
        "GET", "/datasets/delete/:triggerid", delete_state, "What has become of that.", DisposalState, access="reveals"
    ),
]
