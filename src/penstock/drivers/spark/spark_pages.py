"""Spark's own pages: where they show a worker, and what they say of it.

Spark shows the description of a job as HTML if there is nothing in it but text and links that begin with `/`, and as
plain text otherwise. It puts its own base path before such a link. The page of a Penstock job is at another port, so
the link to it begins with `//` and takes the scheme of Spark's page. That leads to the page where Spark has no base
path and both have the same scheme. Elsewhere, such as behind YARN's proxy, the address is text. It is the text of the
link as well, so that whoever reads it elsewhere, such as in Spark's REST API, has the address in either case.
"""

from __future__ import annotations

import html
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from penstock.drivers.job_pages import page_of

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Where Spark keeps the base path of its pages when a proxy is before them.
PROXY_BASE: Final = "spark.ui.proxyBase"
PROXY_BASE_VARIABLE: Final = "APPLICATION_WEB_PROXY_BASE"
_SCHEME: Final = re.compile(r"^https?:")


def described(text: str, page: str | None, spark_ui: str | None) -> str:
    """What Spark's pages say of one of its jobs.

    Args:
        text: what it is for.
        page: the address of the page of the Penstock job; None when nobody serves one.
        spark_ui: the address of Spark's pages; None when a link does not work on them.
    """
    if page is None:
        return text
    scheme = _SCHEME.match(page)
    if scheme is None or spark_ui is None or not spark_ui.startswith(scheme[0]):
        return f"{text}, {page}"
    address = html.escape(page)
    return f'{html.escape(text, quote=False)}, <a href="{address.removeprefix(scheme[0])}">{address}</a>'


class SparkPages:
    """Of one Spark context, or of none, as over Spark Connect. Any thread may ask."""

    def __init__(self, context: SparkContext | None) -> None:
        self._context = context

    @cached_property
    def url(self) -> str | None:
        """Where they begin; None where there are none, or nobody knows."""
        return None if self._context is None else self._context.uiWebUrl

    def describe(self, job_name: str, job_id: str, worker_id: str | None = None) -> str:
        """What they say of a worker of a Penstock job, or of a Spark job of all its tasks."""
        text = f"Penstock job {job_name}" + (f": {worker_id}" if worker_id is not None else "")
        page = page_of(job_id)
        return described(text, page, None if page is None or self._has_base_path else self.url)

    def of_group(self, tag: str) -> str | None:
        """Where they show the Spark job of a job group; None where there are no pages, or no such job yet."""
        if self.url is None or self._context is None:
            return None
        jobs = self._context.statusTracker().getJobIdsForGroup(tag)
        return f"{self.url}/jobs/job/?id={max(jobs)}" if jobs else None

    @cached_property
    def _has_base_path(self) -> bool:
        java: Any = None if self._context is None else self._context._jvm
        if java is None:
            return False
        return bool(java.System.getProperty(PROXY_BASE) or java.System.getenv(PROXY_BASE_VARIABLE))
