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
from penstock.connectors.opensearch_source import Document, OpensearchSource

#: PyFlink's name of `OpensearchSink`
ElasticsearchSink = OpensearchSink

__all__ = [
    "BulkAction",
    "Document",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "FailureHandler",
    "FlushBackoffType",
    "OpensearchSink",
    "OpensearchSinkBuilder",
    "OpensearchSource",
]
