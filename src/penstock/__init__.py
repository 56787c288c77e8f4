"""Penstock: Flink's programming model in Python, on Spark."""

from importlib.metadata import PackageNotFoundError, version

from penstock.moved_modules import install

install()

from penstock.base.errors import DISTRIBUTION  # noqa: E402 - former names of modules must be known first

try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError:  # imported from a directory or an archive, as on a Spark worker
    __version__ = "0+unknown"

__all__ = ["__version__"]
