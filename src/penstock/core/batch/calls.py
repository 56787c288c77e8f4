"""Waits for a task's asynchronous calls: the task has nothing else to do and blocks until they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.core.ports import Clock
from penstock.core.task.operator_chain import OperatorChain

#: How long a task waits at a time, so that it can be cancelled in between.
WAIT_MS_MAX: Final = 100


class OpenCalls:
    """The open calls of a chain's operators. `wait(ms)`: see `BatchTask`."""

    def __init__(self, chain: OperatorChain, clock: Clock, wait: Callable[[int], None]) -> None:
        self._chain = chain
        self._clock = clock
        self._wait = wait

    def make_room(self) -> Iterator[None]:
        """Wait until the chain can accept more input; yield after each wait."""
        while not self._chain.is_available():
            self._go_on()
            yield

    def bring_back(self) -> Iterator[None]:
        """Wait until no call is open, head first, because results may cause new calls; yield after each wait."""
        while not all(operator.drain() for operator in self._chain.waiting):
            self._go_on()
            yield

    def finish(self, is_input_ended: bool) -> Iterator[None]:
        """Wait until all operators have finished; yield after each wait."""
        while not self._chain.finish(is_input_ended):
            self._go_on()
            yield

    def _go_on(self) -> None:
        """Wait until a call returns or times out; start the calls that a restored state requests."""
        chain, now_ms = self._chain, self._clock.now_ms()
        if chain.process_completions():
            return
        due_ms = min((t for o in chain.waiting if (t := o.next_timer_ms()) is not None), default=now_ms + WAIT_MS_MAX)
        self._wait(max(0, min(WAIT_MS_MAX, due_ms - now_ms)))
        chain.process_completions()
        now_ms = self._clock.now_ms()
        for operator in chain.waiting:
            due = operator.next_timer_ms()
            if due is not None and due <= now_ms:
                operator.on_processing_time(now_ms)
