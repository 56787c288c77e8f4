"""A dashboard for Grafana and alert rules for Prometheus, as files."""

from __future__ import annotations

from pathlib import Path


def directory() -> Path:
    """Return the directory of `grafana-dashboard.json` and `alerts.yml`."""
    return Path(__file__).parent
