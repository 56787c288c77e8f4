"""Each account's bookings, added up."""

from collections import Counter

from examples.running_balance import bookings

from penstock.common import Row


def inputs():
    return (bookings(2_000, seed=113),)


def answer(made):
    numbers: Counter = Counter()
    balances: Counter = Counter()
    told: Counter = Counter()
    for booking in made:
        numbers[booking.account] += 1
        balances[booking.account] += booking.cents
        told[
            Row(
                account=booking.account,
                number=numbers[booking.account],
                cents=booking.cents,
                balance=balances[booking.account],
            )
        ] += 1
    return told
