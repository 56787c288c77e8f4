"""The minimum of every five laps of a driver."""

from collections import Counter, defaultdict

from examples.count_windows import LAPS, laps


def inputs():
    return (laps(1_003, seed=115),)


def answer(made):
    of_drivers = defaultdict(list)
    for driver, lap, seconds in made:
        of_drivers[driver].append((seconds, lap))
    fastest: Counter = Counter()
    for driver, driven in of_drivers.items():
        for window in range(len(driven) // LAPS):
            seconds, lap = min(driven[window * LAPS : (window + 1) * LAPS])
            fastest[driver, window + 1, lap, seconds] += 1
    return fastest
