"""The settings of a stream of Nexmark events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
