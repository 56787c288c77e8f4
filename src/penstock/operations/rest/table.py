"""The table of routes: the single source for the server, the OpenAPI document and the required tokens."""

from __future__ import annotations

from typing import Final

from penstock.operations.rest.calls.routing import Route
from penstock.operations.rest.handlers import (
    applications,
    back_pressure,
    checkpoints,
    datasets,
    jobmanager,
    jobs,
    login,
    metrics,
    overview,
    programs,
    rescales,
    savepoints,
    status_history,
    taskmanagers,
    vertices,
    watermark_hold,
)


def _order(route: Route) -> list[tuple[bool, str]]:
    """Sort fixed parts of a path before parameters, so that /jobs/overview does not match /jobs/:jobid."""
    return [(part.startswith(":"), part) for part in route.path.split("/")]


ROUTES: Final[list[Route]] = sorted(
    [
        *overview.ROUTES,
        *applications.ROUTES,
        *jobs.ROUTES,
        *status_history.ROUTES,
        *vertices.ROUTES,
        *watermark_hold.ROUTES,
        *back_pressure.ROUTES,
        *checkpoints.ROUTES,
        *datasets.ROUTES,
        *savepoints.ROUTES,
        *rescales.ROUTES,
        *taskmanagers.ROUTES,
        *jobmanager.ROUTES,
        *metrics.ROUTES,
        *login.ROUTES,
        *programs.ROUTES,
    ],
    key=_order,
)
