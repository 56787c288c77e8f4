"""Generates bids in columnar batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.table.connectors.chance import Chance, Integers
from penstock.table.connectors.nexmark import ids
from penstock.table.connectors.nexmark.settings import FIRST_ID, NexmarkSettings
from penstock.table.connectors.nexmark.texts import filling

FIELDS: Final = (
    ("auction", pa.int64()),
    ("bidder", pa.int64()),
    ("price", pa.int64()),
    ("channel", pa.string()),
    ("url", pa.string()),
    ("dateTime", pa.timestamp("ms")),
    ("extra", pa.string()),
)
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS: Final = 10_000
#: auction, bidder, price and time, 8 bytes each
_NUMBER_BYTES: Final = 32


def bid_columns(settings: NexmarkSettings, numbers: Integers, times: pa.Array) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the bid events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    def auctions() -> pa.Array:
        hot = ids.hot(ids.last_auction(settings, numbers))
        others = ids.any_auction(settings, numbers, chance, 11)
        return pa.array(ids.choose(chance, 10, settings.hot_auctions, hot, others) + FIRST_ID)

    def bidders() -> pa.Array:
        hot = ids.hot(ids.last_person(settings, numbers), 1)
        others = ids.any_person(settings, numbers, chance, 13)
        return pa.array(ids.choose(chance, 12, settings.hot_bidders, hot, others) + FIRST_ID)

    @cache
    def channels() -> pa.Array:
        others = len(HOT_CHANNELS) + chance.below(_CHANNELS, 16)
        indices = np.where(chance.below(2, 14) == 0, chance.below(len(HOT_CHANNELS), 15), others)
        return pa.array(indices.astype(np.int32))

    return {
        "auction": auctions,
        "bidder": bidders,
        "price": lambda: pa.array(chance.price(17)),
        "channel": lambda: _channels()[0].take(channels()),
        "url": lambda: _channels()[1].take(channels()),
        "dateTime": lambda: times,
        "extra": lambda: filling(chance, 18, np.full(len(numbers), _NUMBER_BYTES), settings.bid_bytes),
    }


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels, hot ones first, and their URLs."""
    chance = Chance(0, np.arange(len(HOT_CHANNELS) + _CHANNELS, dtype=np.int64))
    letters = [chance.below(26**4, lane).tolist() for lane in range(3)]
    has_id = (chance.below(10, 3) > 0).tolist()
    channel_ids = chance.below(2**31, 4).tolist()
    names, urls = [], []
    for index, parts in enumerate(zip(*letters, strict=True)):
        is_hot = index < len(HOT_CHANNELS)
        names.append(HOT_CHANNELS[index] if is_hot else f"channel-{index - len(HOT_CHANNELS)}")
        base = f"https://www.nexmark.com/{'/'.join(map(_letters, parts))}/item.htm?query=1"
        urls.append(base if is_hot or not has_id[index] else f"{base}&channel_id={channel_ids[index]}")
    return pa.array(names), pa.array(urls)


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**index % 26) for index in range(4))
