"""The same in two dictionaries, superstep by superstep."""

from examples.page_rank import DAMPING, links


def inputs():
    return (links(20, seed=127),)


def check(results, linked):
    ranks = {page: 1 / len(linked) for page, _ in linked}
    changed = 1.0
    supersteps = 0
    while changed >= 0.05:
        sums = dict.fromkeys(ranks, 0.0)
        for page, targets in linked:
            for target in targets:
                sums[target] += ranks[page] / len(targets)
        new = {page: (1 - DAMPING) / len(linked) + DAMPING * share for page, share in sums.items()}
        changed = sum(abs(new[page] - rank) for page, rank in ranks.items())
        ranks = new
        supersteps += 1
    assert 2 < supersteps < 10
    assert len(results) == len(ranks)
    assert all(abs(ranks[page] - rank) < 1e-9 for page, rank in results)
    assert abs(sum(rank for _, rank in results) - 1) < 1e-9
