"""The Table API and SQL, under PyFlink's names."""

from penstock.base.types import Row, RowKind
from penstock.sql.catalogs.columns import Schema
from penstock.sql.session.result import ResultKind, TableResult
from penstock.sql.session.session import TableConfig
from penstock.sql.tables.tables import PartitionTimeExtractor
from penstock.sql.user_functions.classes import DataView, ListView, MapView
from penstock.table.changelog_mode import ChangelogMode
from penstock.table.compiled_plan import CompiledPlan, PlanReference
from penstock.table.environment_settings import EnvironmentSettings
from penstock.table.explain_detail import ExplainDetail
from penstock.table.expression import Expression
from penstock.table.model import Model, ModelDescriptor, PredictFunction, VectorSearchFunction
from penstock.table.statement_set import StatementSet
from penstock.table.table import (
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    PartitionedTable,
    Table,
    WindowGroupedTable,
)
from penstock.table.table_descriptor import FormatDescriptor, TableDescriptor
from penstock.table.table_environment import StreamTableEnvironment, TableEnvironment
from penstock.table.table_pipeline import TablePipeline
from penstock.table.types import DataTypes
from penstock.table.udf import (
    AggregateFunction,
    AsyncScalarFunction,
    AsyncTableFunction,
    FunctionContext,
    ProcessTableFunction,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
)

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "AsyncTableFunction",
    "ChangelogMode",
    "CompiledPlan",
    "DataTypes",
    "DataView",
    "EnvironmentSettings",
    "ExplainDetail",
    "Expression",
    "FormatDescriptor",
    "FunctionContext",
    "GroupWindowedTable",
    "GroupedTable",
    "ListView",
    "MapView",
    "Model",
    "ModelDescriptor",
    "OverWindowedTable",
    "PartitionTimeExtractor",
    "PartitionedTable",
    "PlanReference",
    "PredictFunction",
    "ProcessTableFunction",
    "ResultKind",
    "Row",
    "RowKind",
    "ScalarFunction",
    "Schema",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableAggregateFunction",
    "TableConfig",
    "TableDescriptor",
    "TableEnvironment",
    "TableFunction",
    "TablePipeline",
    "TableResult",
    "VectorSearchFunction",
    "WindowGroupedTable",
]
