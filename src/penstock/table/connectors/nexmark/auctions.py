"""Generates auctions in columnar batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.connectors.chance import Chance, Integers
from penstock.table.connectors.nexmark import ids
from penstock.table.connectors.nexmark.settings import (
    CATEGORIES,
    FIRST_CATEGORY,
    FIRST_ID,
    OPEN_AUCTIONS,
    NexmarkSettings,
)
from penstock.table.connectors.nexmark.texts import filling, words

FIELDS: Final = (
    ("id", pa.int64()),
    ("itemName", pa.string()),
    ("description", pa.string()),
    ("initialBid", pa.int64()),
    ("reserve", pa.int64()),
    ("dateTime", pa.timestamp("ms")),
    ("expires", pa.timestamp("ms")),
    ("seller", pa.int64()),
    ("category", pa.int64()),
    ("extra", pa.string()),
)
#: six numbers and timestamps of 8 bytes each
_NUMBER_BYTES: Final = 48


def auction_columns(
    settings: NexmarkSettings, numbers: Integers, times: pa.Array
) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the auction events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    @cache
    def names() -> pa.Array:
        return pc.utf8_trim_whitespace(words(chance, 32, 20))

    @cache
    def descriptions() -> pa.Array:
        return pc.utf8_trim_whitespace(words(chance, 34, 100))

    @cache
    def first_bids() -> Any:
        return chance.price(36)

    def sellers() -> pa.Array:
        hot = ids.hot(ids.last_person(settings, numbers))
        others = ids.any_person(settings, numbers, chance, 31)
        return pa.array(ids.choose(chance, 30, settings.hot_sellers, hot, others) + FIRST_ID)

    def expires() -> pa.Array:
        # On average, an auction stays open until `OPEN_AUCTIONS` others have begun.
        ahead = OPEN_AUCTIONS * settings.cycle // max(settings.auctions, 1)
        horizon = ahead * 1_000 // settings.rate
        begins = np.asarray(times.view(pa.int64()))
        return pa.array(begins + 1 + chance.below(max(2 * horizon, 1), 37)).view(times.type)

    def extra() -> pa.Array:
        sizes: Any = _NUMBER_BYTES + sum(np.asarray(pc.binary_length(column)) for column in (names(), descriptions()))
        return filling(chance, 40, sizes, settings.auction_bytes)

    return {
        "id": lambda: pa.array(ids.last_auction(settings, numbers) + FIRST_ID),
        "itemName": names,
        "description": descriptions,
        "initialBid": lambda: pa.array(first_bids()),
        "reserve": lambda: pa.array(first_bids() + chance.price(38)),
        "dateTime": lambda: times,
        "expires": expires,
        "seller": sellers,
        "category": lambda: pa.array(FIRST_CATEGORY + chance.below(CATEGORIES, 39)),
        "extra": extra,
    }
