"""Every offer beside every wish; and sums by town and quarter of an hour."""

from collections import Counter

from examples.window_join import QUARTER_MS, rides


def inputs():
    return rides("offer", 300, seed=125), rides("wish", 300, seed=126)


def answer(offers, wishes):
    expected = Counter(
        (0, (town, offer, wish))
        for offer, town, offered, offered_ms in offers
        for wish, other_town, wished, wished_ms in wishes
        if town == other_town and wished <= offered and offered_ms // QUARTER_MS == wished_ms // QUARTER_MS
    )
    seats: list[Counter] = [Counter(), Counter()]
    for position, made in enumerate((offers, wishes)):
        for _, town, count, moment_ms in made:
            seats[position][town, moment_ms // QUARTER_MS] += count
    assert expected
    expected.update((1, (*key, seats[0][key], seats[1][key])) for key in seats[0] | seats[1])
    return expected
