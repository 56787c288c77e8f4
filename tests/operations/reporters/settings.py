"""Settings of one reporter, as a configuration has them."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.operations.reporters.settings import ReporterSettings, reporters_of


def settings_of(type: str, what: str = "metrics", **options: str) -> ReporterSettings:
    """One reporter of that type, called `mine`; double underscores in names are dots."""
    named = {f"{what}.reporter.mine.{key.replace('__', '.')}": value for key, value in options.items()}
    (found,) = reporters_of(Configuration.from_dict({f"{what}.reporter.mine.type": type, **named}))
    return found
