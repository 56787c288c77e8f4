"""A dashboard for Grafana and alert rules for Prometheus, as files."""

from __future__ import annotations

from pathlib import Path


def directory() -> Path:
    """Where `grafana-dashboard.json` and `alerts.yml` are."""
    return Path(__file__).parent
