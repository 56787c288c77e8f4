"""The programs of the pages about services of AWS run as they stand, against servers."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.aws import AwsServer, create_stream


def variables(server: AwsServer) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "let-me-in-12"}


def test_the_program_about_kinesis_runs(kinesis: AwsServer, tmp_path: Path) -> None:
    page, arn = "docs/kinesis.md", create_stream(kinesis, "visits", 2)
    addresses = {"STREAM_ARN": arn, "KINESIS_ENDPOINT": kinesis.endpoint}
    PAGES[page].check(run_page(page, "local", tmp_path, variables={**variables(kinesis), **addresses}))
