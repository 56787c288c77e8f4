"""The settings of a stream of Nexmark events.

Computes which persons and auctions exist at an event, from the event's number.

Random texts for many events at once.

The texts of a chunk of events lie side by side in a pool of letters that is generated once. A column is a slice of the
pool, with the offsets of its texts, so no letter is copied.

Generates persons in columnar batches.

Generates auctions in columnar batches.

Generates bids in columnar batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.tables.counter_rng import Chance, Integers

#: 2015-07-15 00:00 UTC
FIRST_EVENT_MS: Final = 1_436_918_400_000
#: the first id of persons and auctions, high enough that queries also match in small streams
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
#: the average number of open auctions, and the number of active people
OPEN_AUCTIONS: Final = 100
ACTIVE_PEOPLE: Final = 1_000
#: ids that may be chosen before their events
ID_LEAD: Final = 10
#: one in this many consecutive ids is hot
HOT_STEP: Final = 100


@dataclass(frozen=True, slots=True)
class NexmarkSettings:
    """The number, kinds and sizes of the events.

    Attributes:
        events: the number of events; None for an unbounded stream.
        rate: events per second of event time.
        persons: the persons in each cycle of `persons + auctions + bids` events; they come first.
        auctions: the auctions in each cycle; they follow the persons.
        bids: the bids in each cycle; they follow the auctions.
        hot_auctions: one in this many bids goes to any open auction, the others to a hot one.
        hot_bidders: one in this many bids is by any active person, the others by a hot bidder.
        hot_sellers: one in this many auctions is by any active person, the others by a hot seller.
        person_bytes: the average size of a person, padded by an extra text.
        auction_bytes: the average size of an auction, padded likewise.
        bid_bytes: the average size of a bid, padded likewise.
        seed: other seeds generate other events.
    """

    events: int | None = None
    rate: int = 10_000
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    seed: int = 0

    @property
    def cycle(self) -> int:
        """The number of events after which the kinds repeat."""
        return self.persons + self.auctions + self.bids


def last_person(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """Return the number of the latest person, from 0, including the event's own; -1 if none exists yet."""
    cycles, positions = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.persons + np.minimum(positions, settings.persons - 1)


def last_auction(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """Return the number of the latest auction, from 0, including the event's own; -1 if none exists yet."""
    cycles, positions = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.auctions + np.clip(positions - settings.persons, -1, settings.auctions - 1)


def any_person(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """Return the number of a random person who is active or about to appear."""
    people = last_person(settings, numbers) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + chance.below(active + ID_LEAD, lane)


def any_auction(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """Return the number of a random auction that is likely open or about to begin."""
    last = last_auction(settings, numbers)
    first = np.maximum(last - OPEN_AUCTIONS, 0)
    return first + chance.below(last - first + 1 + ID_LEAD, lane)


def find_hot(last: Integers, behind: int = 0) -> Integers:
    """Return the latest hot number. `behind`: an offset that gives sellers and bidders different hot persons."""
    return np.maximum(last, 0) // HOT_STEP * HOT_STEP + behind


def choose(chance: Chance, lane: int, ratio: int, hot_ones: Integers, others: Integers) -> Integers:
    """Pick the hot number, except one time in `ratio`."""
    return np.where(chance.below(ratio, lane) > 0, hot_ones, others)


_POOL_BYTES: Final = 16 << 20
_SPACES: Final = 13


def words(chance: Chance, lane: int, below: int) -> pa.Array:
    """Return texts of letters and occasional spaces, with lengths from 3 to below `below`."""
    return _texts(chance, lane, 3 + chance.below(below - 3, lane), has_spaces=True)


def filling(chance: Chance, lane: int, sizes: Integers, average: int) -> pa.Array:
    """Return texts that pad sizes to an average, plus or minus a fifth. Empty if the size is already reached."""
    room = np.maximum(average - sizes, 0)
    spread = np.rint(room * 0.2).astype(np.int64)
    return _texts(chance, lane, room - spread + chance.below(np.maximum(2 * spread, 1), lane), has_spaces=False)


def _texts(chance: Chance, lane: int, lengths: Integers, *, has_spaces: bool) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not total:
        return pa.array([""] * len(lengths), pa.string())
    pool = _pool(has_spaces)
    # The start does not depend on how many texts follow, so a shorter stream is a prefix of a longer one.
    begin = int(chance.bits(lane + 1)[0]) % len(pool)
    if begin + total > len(pool):
        pool = pool * ((begin + total) // len(pool) + 1)
    data = pa.py_buffer(pool).slice(begin, total)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), data])


@lru_cache(maxsize=2)
def _pool(has_spaces: bool) -> bytes:
    chance = Chance(int(has_spaces), np.arange(_POOL_BYTES // 8, dtype=np.int64))
    draws = chance.bits(0).view(np.uint8)
    letters = (draws % 26 + ord("a")).astype(np.uint8)
    if has_spaces:
        letters[chance.bits(1).view(np.uint8) % _SPACES == 0] = ord(" ")
    return letters.tobytes()


PERSON_FIELDS: Final = (
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
        "id": lambda: pa.array(last_person(settings, numbers) + FIRST_ID),
        "name": names,
        "emailAddress": addresses,
        "creditCard": cards,
        "city": cities,
        "state": states,
        "dateTime": lambda: times,
        "extra": extra,
    }


AUCTION_FIELDS: Final = (
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
        hot = find_hot(last_person(settings, numbers))
        others = any_person(settings, numbers, chance, 31)
        return pa.array(choose(chance, 30, settings.hot_sellers, hot, others) + FIRST_ID)

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
        "id": lambda: pa.array(last_auction(settings, numbers) + FIRST_ID),
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


BID_FIELDS: Final = (
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
_BID_NUMBER_BYTES: Final = 32


def bid_columns(settings: NexmarkSettings, numbers: Integers, times: pa.Array) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the bid events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    def auctions() -> pa.Array:
        hot = find_hot(last_auction(settings, numbers))
        others = any_auction(settings, numbers, chance, 11)
        return pa.array(choose(chance, 10, settings.hot_auctions, hot, others) + FIRST_ID)

    def bidders() -> pa.Array:
        hot = find_hot(last_person(settings, numbers), 1)
        others = any_person(settings, numbers, chance, 13)
        return pa.array(choose(chance, 12, settings.hot_bidders, hot, others) + FIRST_ID)

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
        "extra": lambda: filling(chance, 18, np.full(len(numbers), _BID_NUMBER_BYTES), settings.bid_bytes),
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
