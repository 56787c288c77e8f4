"""Spark's own pages: the addresses and descriptions of workers on them.

Spark shows the description of a job as HTML if it contains only text and links that begin with `/`, and as plain text
otherwise. It prepends its own base path to such a link. The page of a Penstock job is on another port, so the link to
it begins with `//` and inherits the scheme of Spark's page. That works if Spark has no base path and both pages have
the same scheme. Otherwise, such as through YARN's proxy, the address is text. It is the text of the link as well, so
that readers elsewhere, such as of Spark's REST API, see the address in either case.
"""

from __future__ import annotations

import html
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from penstock.drivers.job_pages import find_job_page

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Where Spark keeps the base path of its pages if a proxy serves them.
PROXY_BASE: Final = "spark.ui.proxyBase"
PROXY_BASE_VARIABLE: Final = "APPLICATION_WEB_PROXY_BASE"
_SCHEME: Final = re.compile(r"^https?:")


def described(text: str, page: str | None, spark_ui: str | None) -> str:
    """Return the description of a Spark job for Spark's pages.

    Args:
        text: the purpose of the job.
        page: the address of the page of the Penstock job; None if it has no page.
        spark_ui: the address of Spark's pages; None if links do not work on them.
    """
    if page is None:
        return text
    scheme = _SCHEME.match(page)
    if scheme is None or spark_ui is None or not spark_ui.startswith(scheme[0]):
        return f"{text}, {page}"
    address = html.escape(page)
    return f'{html.escape(text, quote=False)}, <a href="{address.removeprefix(scheme[0])}">{address}</a>'


class SparkPages:
    """The pages of one Spark context; none without a context, as over Spark Connect. Any thread may use it."""

    def __init__(self, context: SparkContext | None) -> None:
        self._context = context

    @cached_property
    def url(self) -> str | None:
        """The address of the pages; None without pages, or if unknown."""
        return None if self._context is None else self._context.uiWebUrl

    def describe(self, job_name: str, job_id: str, worker_id: str | None = None) -> str:
        """Describe a worker of a Penstock job, or a Spark job that runs all its tasks."""
        text = f"Penstock job {job_name}" + (f": {worker_id}" if worker_id is not None else "")
        page = find_job_page(job_id)
        return described(text, page, None if page is None or self._has_base_path else self.url)

    def of_group(self, tag: str) -> str | None:
        """Return the address of the page of a job group's Spark job; None without pages, or before that job exists."""
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
