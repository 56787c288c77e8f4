"""Large collections in accumulators of aggregate functions, under the names of `pyflink.table.data_view`."""

from penstock.table.user_functions.views import DataView, ListView, MapView

__all__ = ["DataView", "ListView", "MapView"]
