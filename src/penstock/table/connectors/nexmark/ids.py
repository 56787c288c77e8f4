"""Computes which persons and auctions exist at an event, from the event's number."""

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


def hot(last: Integers, behind: int = 0) -> Integers:
    """Return the latest hot number. `behind`: an offset that gives sellers and bidders different hot persons."""
    return np.maximum(last, 0) // HOT_STEP * HOT_STEP + behind


def choose(chance: Chance, lane: int, ratio: int, hot_ones: Integers, others: Integers) -> Integers:
    """Pick the hot number, except one time in `ratio`."""
    return np.where(chance.below(ratio, lane) > 0, hot_ones, others)
