"""Typed configuration options: `ConfigOption`, and `ConfigOptions` to build one step by step."""

from penstock.base.config_options import (
    ConfigOption,
    ConfigOptions,
)

__all__ = [
    "ConfigOption",
    "ConfigOptions",
]
