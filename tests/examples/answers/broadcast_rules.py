"""Every payment, at the one rate of its currency."""

import random
from collections import Counter
from collections.abc import Iterable

from examples.broadcast_rules import Converted, Payment, Rate


def inputs():
    chance = random.Random(4)
    payments = [
        (f"account {chance.randrange(50)}", chance.choice("ABC"), chance.randrange(9_999)) for _ in range(1_000)
    ]
    return payments, [("A", 1, 50), ("B", 1, 100), ("C", 1, 333)]


def answer(payments: Iterable[Payment], rates: Iterable[Rate]) -> Counter[Converted]:
    cents_of = {currency: cents for currency, _, cents in rates}
    return Counter((account, which, amount, amount * cents_of[which] // 100) for account, which, amount in payments)
