"""dbt's own test suite for adapters: its basic classes."""

import pytest
from dbt.tests.adapter.basic import test_snapshot_check_cols, test_snapshot_timestamp
from dbt.tests.adapter.basic.expected_catalog import base_expected_catalog, no_stats
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_incremental import BaseIncremental, BaseIncrementalBadStrategy
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt.tests.util import generate_update_clause, get_connection, relation_from_name


def update_rows(adapter, changes) -> None:
    """Do what UPDATE does elsewhere: build the table anew. Penstock's files know no UPDATE."""
    relation = relation_from_name(adapter, changes["name"])
    new = generate_update_clause(adapter, changes["clause"])  # which closes the connection
    with get_connection(adapter):
        columns = [column.name for column in adapter.get_columns_in_relation(relation)]
        changed = changes["dst_col"]
        case = f"case when {changes['where']} then {new} else {changed} end as {changed}"
        selected = ", ".join(case if column == changed else column for column in columns)
        staging = relation.incorporate(path={"identifier": f"{relation.identifier}__dbt_new"})
        options = adapter.table_options(relation, None, None)
        adapter.execute(f"create table {staging} {options} as select {selected} from {relation}")
        adapter.publish(staging, relation)


class TestSimpleMaterializations(BaseSimpleMaterializations):
    pass


class TestSingularTests(BaseSingularTests):
    pass


class TestSingularTestsEphemeral(BaseSingularTestsEphemeral):
    pass


class TestEmpty(BaseEmpty):
    pass


class TestEphemeral(BaseEphemeral):
    pass


class TestIncremental(BaseIncremental):
    pass


class TestIncrementalBadStrategy(BaseIncrementalBadStrategy):
    pass


class TestGenericTests(BaseGenericTests):
    pass


class TestSnapshotCheckCols(BaseSnapshotCheckCols):
    @pytest.fixture(autouse=True)
    def replace_update(self, monkeypatch):
        monkeypatch.setattr(test_snapshot_check_cols, "update_rows", update_rows)


class TestSnapshotTimestamp(BaseSnapshotTimestamp):
    @pytest.fixture(autouse=True)
    def replace_update(self, monkeypatch):
        monkeypatch.setattr(test_snapshot_timestamp, "update_rows", update_rows)


class TestAdapterMethod(BaseAdapterMethod):
    pass


class TestValidateConnection(BaseValidateConnection):
    pass


class TestTableMaterialization(BaseTableMaterialization):
    pass


class TestDocsGenerate(BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project):
        return base_expected_catalog(
            project,
            role=None,
            id_type="BIGINT",
            text_type="STRING",
            time_type="TIMESTAMP(6)",
            view_type="VIEW",
            table_type="TABLE",
            model_stats=no_stats(),
        )
