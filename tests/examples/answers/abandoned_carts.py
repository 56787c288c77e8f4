"""Each visitor's events in order; a cart is told where the next one is missing or more than an hour away."""

from collections import Counter, defaultdict

from examples.abandoned_carts import HOUR_MS, events


def inputs():
    return (events(2_000, seed=119),)


def check(results, made):
    """Carts are dicts, which cannot be counted: their items, sorted, stand for them."""
    of_visitors = defaultdict(list)
    for event in made:
        of_visitors[event.visitor].append(event)
    expected: Counter = Counter()
    for visitor, of_visitor in of_visitors.items():
        cart: Counter = Counter()
        for event, later in zip(of_visitor, [*of_visitor[1:], None], strict=True):
            if event.action == "pay":
                cart.clear()
            elif event.action == "put":
                cart[event.article] += 1
            else:
                cart -= Counter([event.article])
            due_ms = event.time_ms + HOUR_MS
            if cart and (later is None or later.time_ms > due_ms):
                expected[visitor, due_ms, tuple(sorted(cart.items()))] += 1
    assert expected
    assert Counter((visitor, due_ms, tuple(sorted(cart.items()))) for visitor, due_ms, cart in results) == expected
