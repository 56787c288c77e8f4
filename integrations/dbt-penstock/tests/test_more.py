"""Further classes of dbt's own test suite for adapters."""

import re

import pytest
from dbt.tests.adapter.aliases.fixtures import MACROS__EXPECT_VALUE_SQL
from dbt.tests.adapter.aliases.test_aliases import BaseAliases, BaseSameAliasDifferentSchemas
from dbt.tests.adapter.caching.test_caching import BaseCachingLowercaseModel, BaseCachingSelectedSchemaOnly
from dbt.tests.adapter.dbt_debug.test_dbt_debug import BaseDebugPostgres
from dbt.tests.adapter.dbt_show.test_dbt_show import BaseShowLimit
from dbt.tests.adapter.empty.test_empty import BaseTestEmpty
from dbt.tests.adapter.relations.test_changing_relation_type import BaseChangeRelationTypeValidator
from dbt.tests.adapter.store_test_failures_tests.basic import StoreTestFailuresAsInteractions
from dbt.tests.adapter.unit_testing.test_case_insensitivity import BaseUnitTestCaseInsensivity
from dbt.tests.adapter.unit_testing.test_invalid_input import BaseUnitTestInvalidInput
from dbt.tests.adapter.unit_testing.test_types import BaseUnitTestingTypes
from dbt.tests.adapter.utils.test_concat import BaseConcat
from dbt.tests.adapter.utils.test_current_timestamp import BaseCurrentTimestampNaive
from dbt.tests.adapter.utils.test_date_trunc import BaseDateTrunc
from dbt.tests.adapter.utils.test_dateadd import BaseDateAdd
from dbt.tests.adapter.utils.test_datediff import BaseDateDiff
from dbt.tests.adapter.utils.test_hash import BaseHash
from dbt.tests.adapter.utils.test_replace import BaseReplace
from dbt.tests.adapter.utils.test_split_part import BaseSplitPart

LITERAL = "{% macro string_literal(s) %} cast('{{ s }}' as string) {% endmacro %}"
#: names of columns in dbt's models that are keywords of Flink's SQL
KEYWORD = re.compile(r"(?<![\w'`.])(result|day|month)(?![\w'`(])")


class QuotedKeywords:
    """Quotes the keywords in the models of a class."""

    @pytest.fixture(scope="class")
    def models(self, models):
        return {name: KEYWORD.sub(r"`\1`", text) if name.endswith(".sql") else text for name, text in models.items()}


class TestDebug(BaseDebugPostgres):
    def test_wronguser(self, project):
        pytest.skip("a gateway has no users")

    def test_nopass(self, project):
        pytest.skip("a gateway has no users")


class TestAliases(BaseAliases):
    @pytest.fixture(scope="class")
    def macros(self):
        return {"cast.sql": LITERAL, "expect_value.sql": MACROS__EXPECT_VALUE_SQL}


class TestSameAliasDifferentSchemas(BaseSameAliasDifferentSchemas):
    @pytest.fixture(scope="class")
    def macros(self):
        return {"cast.sql": LITERAL, "expect_value.sql": MACROS__EXPECT_VALUE_SQL}


class TestCachingLowercaseModel(BaseCachingLowercaseModel):
    pass


class TestCachingSelectedSchemaOnly(BaseCachingSelectedSchemaOnly):
    pass


class TestShowLimit(BaseShowLimit):
    pass


class TestEmpty(BaseTestEmpty):
    pass


class TestChangeRelationType(BaseChangeRelationTypeValidator):
    pass


class TestStoreTestFailures(StoreTestFailuresAsInteractions):
    pass


class TestUnitTestCaseInsensitivity(BaseUnitTestCaseInsensivity):
    pass


class TestUnitTestInvalidInput(BaseUnitTestInvalidInput):
    pass


class TestUnitTestingTypes(BaseUnitTestingTypes):
    @pytest.fixture
    def data_types(self):
        return [
            ["1", "1"],
            ["cast('1' as string)", "string"],
            ["true", "true"],
            ["date '2020-01-02'", "2020-01-02"],
            ["timestamp '2013-11-03 00:00:00'", "2013-11-03 00:00:00"],
            ["cast('1.5' as decimal(10, 2))", "1.5"],
        ]


class TestConcat(BaseConcat):
    pass


class TestCurrentTimestamp(BaseCurrentTimestampNaive):
    pass


class TestDateTrunc(QuotedKeywords, BaseDateTrunc):
    pass


class TestDateAdd(QuotedKeywords, BaseDateAdd):
    pass


class TestDateDiff(QuotedKeywords, BaseDateDiff):
    pass


class TestHash(BaseHash):
    pass


class TestReplace(QuotedKeywords, BaseReplace):
    pass


class TestSplitPart(BaseSplitPart):
    pass
