"""A walk over the ferries from each island that was not reached yet, the lowest first."""

from collections import Counter

from examples.connected_components import ferries, islands


def inputs():
    return islands(30), ferries(30, seed=128)


def answer(places, connections):
    groups: dict[int, int] = {}
    for place in places:
        waiting = [place]
        while waiting:
            here = waiting.pop()
            if here not in groups:
                groups[here] = place
                waiting += [to for start, to in connections if start == here]
                waiting += [start for start, to in connections if to == here]
    assert 1 < len(set(groups.values())) < len(places)
    return Counter(groups.items())
