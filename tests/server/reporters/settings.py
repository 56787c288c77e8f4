"""Settings of one reporter, as a configuration has them."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.server.reporters.reporter import ReporterSettings, read_reporters


def parse_reporter(type: str, what: str = "metrics", **options: str) -> ReporterSettings:
    """One reporter of that type, called `mine`; double underscores in names are dots."""
    named = {f"{what}.reporter.mine.{key.replace('__', '.')}": value for key, value in options.items()}
    (found,) = read_reporters(Configuration.from_dict({f"{what}.reporter.mine.type": type, **named}))
    return found
