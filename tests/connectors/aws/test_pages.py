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


def test_the_program_about_dynamodb_runs(moto: AwsServer, tmp_path: Path) -> None:
    page, service = "docs/dynamodb.md", moto.connect("dynamodb")
    service.create_table(
        TableName="visits",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("person", "page")],
        KeySchema=[{"AttributeName": "person", "KeyType": "HASH"}, {"AttributeName": "page", "KeyType": "RANGE"}],
    )
    addresses = {"DYNAMODB_ENDPOINT": moto.endpoint}
    PAGES[page].check(run_page(page, "local", tmp_path, variables={**variables(moto), **addresses}))


def test_the_program_about_sqs_runs(moto: AwsServer, tmp_path: Path) -> None:
    page, service = "docs/sqs.md", moto.connect("sqs")
    service.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})
    PAGES[page].check(run_page(page, "local", tmp_path, variables={**variables(moto), "SQS_ENDPOINT": moto.endpoint}))
    assert service.receive_message(QueueUrl=f"{moto.endpoint}/123456789012/orders.fifo")["Messages"][0]["Body"] == (
        '{"person":"eve","drink":"wine"}'
    )
