"""Which persons and auctions there are when an event happens: arithmetic on the event's number."""

from __future__ import annotations

import numpy as np

from penstock.table.connectors.chance import Chance, Integers
from penstock.table.connectors.nexmark.settings import (
    ACTIVE_PEOPLE,
    HOT_STEP,
    ID_LEAD,
    OPEN_AUCTIONS,
    NexmarkSettings,
)


def last_person(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """The number of the person that came last, from 0 on, the event's own included; -1 where there is none."""
    cycles, places = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.persons + np.minimum(places, settings.persons - 1)


def last_auction(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """The number of the auction that came last, from 0 on, the event's own included; -1 where there is none."""
    cycles, places = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.auctions + np.clip(places - settings.persons, -1, settings.auctions - 1)


def any_person(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """Somebody active, or about to come."""
    people = last_person(settings, numbers) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + chance.below(active + ID_LEAD, lane)


def any_auction(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """An auction that is likely to be open, or about to come."""
    last = last_auction(settings, numbers)
    first = np.maximum(last - OPEN_AUCTIONS, 0)
    return first + chance.below(last - first + 1 + ID_LEAD, lane)


def hot(last: Integers, behind: int = 0) -> Integers:
    """The hot one among the latest. `behind`: sellers and bidders have different hot persons."""
    return np.maximum(last, 0) // HOT_STEP * HOT_STEP + behind


def choose(chance: Chance, lane: int, ratio: int, hot_ones: Integers, others: Integers) -> Integers:
    """A hot one, but for one of `ratio` times."""
    return np.where(chance.below(ratio, lane) > 0, hot_ones, others)
