"""The adapter of dbt for Penstock.

| file | contents |
| --- | --- |
| `gateway` | sessions and statements over the REST API of `penstock gateway` |
| `connections` | the profile, and connections and cursors as dbt knows them |
| `relations` | names and types of tables and columns |
| `declarations` | the texts of SQL: declarations of tables, literals, and what SHOW CREATE TABLE says |
| `jobs` | streaming jobs: what is recorded of them, and how a run starts, keeps, changes and ends them |
| `impl` | the adapter |
"""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.penstock.connections import PenstockConnectionManager, PenstockCredentials
from dbt.adapters.penstock.impl import PenstockAdapter
from dbt.include import penstock

__all__ = ["PenstockConnectionManager", "PenstockCredentials", "Plugin"]

Plugin = AdapterPlugin(adapter=PenstockAdapter, credentials=PenstockCredentials, include_path=penstock.PACKAGE_PATH)
