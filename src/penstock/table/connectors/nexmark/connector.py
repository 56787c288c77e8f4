"""The `nexmark` connector: a table of Nexmark benchmark events, with the options of Flink's `nexmark` connector.

Its columns are event_type (0, 1, 2) and one ROW each for persons, auctions and bids, only one of them not NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.table.connectors.abilities import NestedPushDown, Path, ProjectionPushDown, TableScan
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.nexmark.settings import NexmarkSettings
from penstock.table.connectors.nexmark.source import COLUMNS, KINDS, NexmarkColumnsSource
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableReader
from penstock.table.data.arrow_types import arrow_type, logical_type
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Scan


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


def _size(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).memory_type().default_value(default).with_description(description)


EVENTS: Final = _number("events.num", 0, "The number of events; 0 for an unbounded table.")
FIRST_RATE: Final = _number("first-event.rate", 10_000, "The number of events per second of event time.")
NEXT_RATE: Final = _number("next-event.rate", 10_000, "The same; a different rate is not supported.")
IS_LIMITED: Final = (
    ConfigOptions.key("rate.limited")
    .boolean_type()
    .default_value(False)
    .with_description("Whether events are emitted at that rate instead of as fast as possible.")
)
SEED: Final = _number("seed", 0, "The random seed; a different seed generates different events.")
PERSONS: Final = _number("person.proportion", 1, "The proportion of persons among persons, auctions and bids.")
AUCTIONS: Final = _number("auction.proportion", 3, "The proportion of auctions.")
BIDS: Final = _number("bid.proportion", 46, "The proportion of bids.")
HOT_AUCTIONS: Final = _number("bid.hot-ratio.auctions", 2, "With a ratio of n, one in n bids is not for a hot auction.")
HOT_BIDDERS: Final = _number("bid.hot-ratio.bidders", 4, "With a ratio of n, one in n bids is not by a hot bidder.")
HOT_SELLERS: Final = _number(
    "auction.hot-ratio.sellers", 4, "With a ratio of n, one in n auctions is not by a hot seller."
)
PERSON_BYTES: Final = _size("person.avg-size", 200, "The average size of a person.")
AUCTION_BYTES: Final = _size("auction.avg-size", 500, "The average size of an auction.")
BID_BYTES: Final = _size("bid.avg-size", 100, "The average size of a bid.")
_POSITIVE: Final = (FIRST_RATE, HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS)
_NOT_NEGATIVE: Final = (EVENTS, PERSONS, AUCTIONS, BIDS)


@dataclass(frozen=True, slots=True)
class NexmarkScan(TableScan, ProjectionPushDown, NestedPushDown):
    """Generates only the requested columns and fields."""

    settings: NexmarkSettings
    columns: tuple[str, ...]
    is_limited: bool

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return TableReader(NexmarkColumnsSource(self.settings, self.columns, self.is_limited))

    def with_columns(self, columns: Sequence[int]) -> NexmarkScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_leaves(self, paths: Sequence[Path]) -> NexmarkScan:
        """See `NestedPushDown`."""
        return replace(self, columns=tuple(_leaf(self.columns[path[0]], path[1:]) for path in paths))


def _leaf(column: str, fields: Path) -> str:
    if not fields:
        return column
    (index,) = fields
    return f"{column}.{KINDS[column][1][index][0]}"


class NexmarkConnector(TableConnector):
    """See the module docstring."""

    name = "nexmark"
    optional_options = (
        EVENTS,
        FIRST_RATE,
        NEXT_RATE,
        IS_LIMITED,
        SEED,
        PERSONS,
        AUCTIONS,
        BIDS,
        HOT_AUCTIONS,
        HOT_BIDDERS,
        HOT_SELLERS,
        PERSON_BYTES,
        AUCTION_BYTES,
        BID_BYTES,
    )

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan; raise `ValidationError` for columns that events do not have."""
        for option in _POSITIVE:
            _at_least(options, option, 1)
        for option in _NOT_NEGATIVE:
            _at_least(options, option, 0)
        if NEXT_RATE.key() in options and options.read(NEXT_RATE) != options.read(FIRST_RATE):
            raise UnsupportedError(
                f"table {options.title}: '{NEXT_RATE.key()}' must be the same as '{FIRST_RATE.key()}': the rate does "
                "not change"
            )
        settings = NexmarkSettings(
            events=options.read(EVENTS) or None,
            rate=options.read(FIRST_RATE),
            persons=options.read(PERSONS),
            auctions=options.read(AUCTIONS),
            bids=options.read(BIDS),
            hot_auctions=options.read(HOT_AUCTIONS),
            hot_bidders=options.read(HOT_BIDDERS),
            hot_sellers=options.read(HOT_SELLERS),
            person_bytes=options.read(PERSON_BYTES),
            auction_bytes=options.read(AUCTION_BYTES),
            bid_bytes=options.read(BID_BYTES),
            seed=options.read(SEED),
        )
        if not settings.cycle:
            raise options.wrong(BIDS.key(), "one of the proportions must be above 0")
        _check_columns(scan, options)
        return NexmarkScan(settings, tuple(scan.schema.names), options.read(IS_LIMITED))


def _at_least(options: TableOptions, option: ConfigOption[Any], least: int) -> None:
    if options.read(option) < least:
        raise options.wrong(option.key(), f"it must be at least {least}, not {options.read(option)}")


def _check_columns(scan: Scan, options: TableOptions) -> None:
    for column in scan.schema:
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise ValidationError(
                f"Table {options.title} of connector 'nexmark' cannot have a column '{column.name}'. Its columns are "
                f"{', '.join(COLUMNS)}"
            )
        if arrow_type(column.type) != kind:
            raise ValidationError(
                f"Column '{column.name}' of table {options.title} must be of type {logical_type(kind)} for connector "
                f"'nexmark', not {column.type}"
            )
