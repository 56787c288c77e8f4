"""Records in flight have the names in checkpoints that they always had (G5), so every release reads those of others."""

from __future__ import annotations

import pytest

from penstock.storage.metadata import ChannelState, Direction, parse_channel

STORED = {
    "_penstock_in_flight.in.0.3": ChannelState(Direction.IN, 0, 3),
    "_penstock_in_flight.out.12.0": ChannelState(Direction.OUT, 12, 0),
}


@pytest.mark.parametrize(("name", "channel"), STORED.items())
def test_the_stored_form(name: str, channel: ChannelState) -> None:
    assert channel.stored_name == name
    assert parse_channel(name) == channel


def test_another_state_is_no_channel() -> None:
    with pytest.raises(AssertionError, match="names no records in flight"):
        parse_channel("sums.in.0.3")
