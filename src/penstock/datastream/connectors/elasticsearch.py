"""Elasticsearch and OpenSearch under PyFlink's names."""

from penstock.connectors.opensearch import (
    BulkAction,
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    FailureHandler,
    FlushBackoffType,
    OpensearchSink,
    OpensearchSinkBuilder,
)

#: PyFlink's name of `OpensearchSink`
ElasticsearchSink = OpensearchSink

__all__ = [
    "BulkAction",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "FailureHandler",
    "FlushBackoffType",
    "OpensearchSink",
    "OpensearchSinkBuilder",
]
