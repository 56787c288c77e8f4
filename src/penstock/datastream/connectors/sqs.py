"""SQS: a sink of messages, and a source that deletes them at checkpoints."""

from penstock.connectors.aws.sqs import SqsMessage, SqsSink, SqsSinkBuilder, SqsSource

__all__ = ["SqsMessage", "SqsSink", "SqsSinkBuilder", "SqsSource"]
