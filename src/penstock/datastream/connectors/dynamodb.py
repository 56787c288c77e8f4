"""DynamoDB: a sink of items, and a source that scans a table."""

from penstock.connectors.aws.dynamodb import (
    DynamoDbScanSource,
    DynamoDbSink,
    DynamoDbSinkBuilder,
    DynamoDbWriteRequest,
)

__all__ = ["DynamoDbScanSource", "DynamoDbSink", "DynamoDbSinkBuilder", "DynamoDbWriteRequest"]
