"""Large collections in accumulators of aggregate functions, under the names of `pyflink.table.data_view`."""

from penstock.sql.user_functions.classes import DataView, ListView, MapView

__all__ = ["DataView", "ListView", "MapView"]
