"""A counter of pages for each five minutes, sorted."""

from collections import Counter, defaultdict

from examples.top_n_pages import MINUTE_MS, reads

SIZE_MS = 5 * MINUTE_MS


def inputs():
    return (reads(6_000, seed=105),)


def answer(made):
    by_window: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for page, moment_ms in made:
        by_window[moment_ms // SIZE_MS * SIZE_MS + SIZE_MS][page] += 1
    ranked: Counter = Counter()
    for end_ms, counts in by_window.items():
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
        ranked.update((end_ms, place, page, count) for place, (page, count) in enumerate(best, start=1))
    return ranked
