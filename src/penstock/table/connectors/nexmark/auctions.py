"""Auctions: columns of many at once."""

from __future__ import annotations

from typing import Final

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
#: the six numbers and times, 8 bytes each
_NUMBER_BYTES: Final = 48


def auction_columns(settings: NexmarkSettings, numbers: Integers, times: pa.Array) -> list[pa.Array]:
    """The fields of the auctions of these numbers."""
    chance = Chance(settings.seed, numbers)
    sellers = ids.choose(
        chance,
        30,
        settings.hot_sellers,
        ids.hot(ids.last_person(settings, numbers)),
        ids.any_person(settings, numbers, chance, 31),
    )
    names = pc.utf8_trim_whitespace(words(chance, 32, 20))
    descriptions = pc.utf8_trim_whitespace(words(chance, 34, 100))
    first_bids = chance.price(36)
    # On average an auction is open until as many others as are open at a time have begun.
    ahead = OPEN_AUCTIONS * settings.cycle // max(settings.auctions, 1)
    begins = np.asarray(times.view(pa.int64()))
    horizon = ahead * 1_000 // settings.rate
    expires = begins + 1 + chance.below(max(2 * horizon, 1), 37)
    sizes = _NUMBER_BYTES + np.asarray(pc.binary_length(names)) + np.asarray(pc.binary_length(descriptions))
    return [
        pa.array(ids.last_auction(settings, numbers) + FIRST_ID),
        names,
        descriptions,
        pa.array(first_bids),
        pa.array(first_bids + chance.price(38)),
        times,
        pa.array(expires).view(times.type),
        pa.array(sellers + FIRST_ID),
        pa.array(FIRST_CATEGORY + chance.below(CATEGORIES, 39)),
        filling(chance, 40, sizes, settings.auction_bytes),
    ]
