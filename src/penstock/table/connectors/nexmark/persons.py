"""Generates persons in columnar batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.connectors.chance import Chance, Integers
from penstock.table.connectors.nexmark import ids
from penstock.table.connectors.nexmark.settings import FIRST_ID, NexmarkSettings
from penstock.table.connectors.nexmark.texts import filling, words

FIELDS: Final = (
    ("id", pa.int64()),
    ("name", pa.string()),
    ("emailAddress", pa.string()),
    ("creditCard", pa.string()),
    ("city", pa.string()),
    ("state", pa.string()),
    ("dateTime", pa.timestamp("ms")),
    ("extra", pa.string()),
)
_FIRST_NAMES: Final = pa.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
_LAST_NAMES: Final = pa.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_CITIES: Final = pa.array(
    [
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne",
    ]
)
_STATES: Final = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_DIGITS: Final = pa.array([f"{number:04}" for number in range(10_000)])


def person_columns(
    settings: NexmarkSettings, numbers: Integers, times: pa.Array
) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the person events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    def pick_text(texts: pa.Array, lane: int) -> pa.Array:
        return texts.take(pa.array(chance.below(len(texts), lane)))

    @cache
    def names() -> pa.Array:
        return pc.binary_join_element_wise(pick_text(_FIRST_NAMES, 50), pick_text(_LAST_NAMES, 51), " ")

    @cache
    def addresses() -> pa.Array:
        mailboxes = pc.utf8_trim_whitespace(words(chance, 52, 7))
        hosts = pc.utf8_trim_whitespace(words(chance, 54, 5))
        return pc.binary_join_element_wise(pc.binary_join_element_wise(mailboxes, hosts, "@"), "com", ".")

    @cache
    def cards() -> pa.Array:
        return pc.binary_join_element_wise(*(pick_text(_DIGITS, lane) for lane in range(56, 60)), " ")

    @cache
    def cities() -> pa.Array:
        return pick_text(_CITIES, 60)

    @cache
    def states() -> pa.Array:
        return pick_text(_STATES, 61)

    def extra() -> pa.Array:
        texts = (names(), addresses(), cards(), cities(), states())
        sizes: Any = 8 + sum(np.asarray(pc.binary_length(column)) for column in texts)
        return filling(chance, 62, sizes, settings.person_bytes)

    return {
        "id": lambda: pa.array(ids.last_person(settings, numbers) + FIRST_ID),
        "name": names,
        "emailAddress": addresses,
        "creditCard": cards,
        "city": cities,
        "state": states,
        "dateTime": lambda: times,
        "extra": extra,
    }
