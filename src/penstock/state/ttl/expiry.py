"""The expiry rules of one state, and the sweeper that every access notifies."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.backend import KeyedStateBackend
from penstock.state.descriptors import StateDescriptor
from penstock.state.ttl_cleanup import Cleaning
from penstock.state.ttl_config import StateTtlConfig


class Expiry:
    """The expiry rules of one state, and its cleanup. `sweeper` is None if nothing sweeps its entries."""

    __slots__ = ("_now_ms", "_sweeper", "reading_counts", "shows_expired", "ttl_ms")

    def __init__(self, config: StateTtlConfig, now_ms: Callable[[], int], sweeper: Cleaning | None) -> None:
        self.ttl_ms = config.ttl_ms
        self.reading_counts = config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        self.shows_expired = config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        self._now_ms = now_ms
        self._sweeper = sweeper

    def access(self) -> int:
        """Clean up a little on an access to the state, and return the time (ms)."""
        if self._sweeper is not None:
            self._sweeper.on_access()
        return self._now_ms()


def build_expiry(keyed: KeyedStateBackend, descriptor: StateDescriptor, config: StateTtlConfig) -> Expiry:
    """Return the rules of a declared state. It has a single sweeper, however often this is called."""
    name = descriptor.name
    if name not in keyed.sweepers and (sweeper := keyed.build_sweeper(descriptor, config)) is not None:
        keyed.sweepers[name] = sweeper
    return Expiry(config, keyed.now_ms, keyed.sweepers.get(name))
