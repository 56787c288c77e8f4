"""What a stream of Nexmark events is like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: 2015-07-15 00:00 UTC
FIRST_EVENT_MS: Final = 1_436_918_400_000
#: the first ids, so that queries find something in small streams, too
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
#: how many auctions are open at a time, on average, and how many people take part
OPEN_AUCTIONS: Final = 100
ACTIVE_PEOPLE: Final = 1_000
#: ids that are chosen although their events come later
ID_LEAD: Final = 10
#: of so many ids in a row one is hot
HOT_STEP: Final = 100


@dataclass(frozen=True, slots=True)
class NexmarkSettings:
    """How many events there are, and of what kinds.

    Attributes:
        events: how many; None for no end.
        rate: events a second of event time.
        persons: of `persons + auctions + bids` events in a row the first ones are persons,
        auctions: then come auctions,
        bids: and then bids.
        hot_auctions: one of so many bids goes to any open auction, the others to a hot one.
        hot_bidders: one of so many bids is by anybody active, the others by a hot bidder.
        hot_sellers: one of so many auctions is by anybody active, the others by a hot seller.
        person_bytes: the average size of a person, which an extra text fills up,
        auction_bytes: of an auction,
        bid_bytes: and of a bid.
        seed: other seeds give other events.
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
        """After how many events the kinds begin again."""
        return self.persons + self.auctions + self.bids
