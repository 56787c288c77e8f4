"""Calls out of a task that has nothing else to do: the task blocks until they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.core.ports import Clock
from penstock.core.task.operator_chain import OperatorChain

#: How long a task waits at a time, so that it can be cancelled meanwhile.
WAIT_MS_MAX: Final = 100


class OpenCalls:
    """The calls of a chain's operators. `wait(ms)`: see `BatchTask`."""

    def __init__(self, chain: OperatorChain, clock: Clock, wait: Callable[[int], None]) -> None:
        self._chain = chain
        self._clock = clock
        self._wait = wait

    def make_room(self) -> Iterator[None]:
        """Wait until the chain can take more input; yields after each wait."""
        while not self._chain.is_available():
            self._go_on()
            yield

    def bring_back(self) -> Iterator[None]:
        """Wait until no call is out, head first, because results may cause new calls; yields after each wait."""
        while not all(operator.drain() for operator in self._chain.waiting):
            self._go_on()
            yield

    def finish(self, is_input_ended: bool) -> Iterator[None]:
        """Wait until all operators have finished; yields after each wait."""
        while not self._chain.finish(is_input_ended):
            self._go_on()
            yield

    def _go_on(self) -> None:
        """Wait until a call has come back, or its time is over; start those that a restored state asks for."""
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
