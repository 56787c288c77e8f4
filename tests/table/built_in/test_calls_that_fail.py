"""Whatever is called with whatever operands, the error is one of this package, which says what is wrong."""

from __future__ import annotations

import random

import pytest
from tests.effort import tries

from penstock.base.errors import PenstockError
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.registry import SCALAR_FUNCTIONS
from penstock.sql.parser import SqlParserError
from penstock.table import EnvironmentSettings, TableEnvironment

#: what is no function of the registry: aggregates, windows, patterns, forms with a syntax of their own
OTHERS = (
    "TUMBLE HOP CUMULATE SESSION TUMBLE_START GROUPING GROUPING_ID GROUP_ID MATCH_ROWTIME FIRST_VALUE LAST_VALUE COUNT "
    "SUM LAG LEAD NTILE ROW_NUMBER RANK PERCENT_RANK LISTAGG COLLECT ARRAY_AGG JSON_OBJECTAGG PERCENTILE STDDEV_POP "
    "CLASSIFIER PREV NEXT FIRST LAST ML_PREDICT DESCRIPTOR PERIOD CUBE ROLLUP IF NULLIF IFNULL CAST TRY_CAST"
)
NAMES = sorted({*SCALAR_FUNCTIONS, *OTHERS.split()})
OPERANDS = [
    *("1", "-1.5", "1e0", "'a'", "''", "NULL", "TRUE", "x", "*", "DISTINCT 1", "ALL 1", "x -> x", "a => 1", "TABLE t"),
    *("ARRAY[1]", "MAP['a', 1]", "ROW(1, 2)", "(1, 2)", "DESCRIPTOR(a)", "CAST(NULL AS INT)", "X'41'", "(SELECT 1)"),
    *("DATE '2020-01-01'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "TIMESTAMP '2020-01-01 00:00:00'"),
]


def test_any_call_is_planned_or_refused() -> None:
    """Names of operators in backticks, too, and any number of operands."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for _ in range(tries(3_000)):
        name = chance.choice(NAMES)
        operands = ", ".join(chance.choice(OPERANDS) for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 4])))
        quote = "`" if chance.random() < 0.5 or not name.replace("_", "").isalnum() else ""
        query = f"SELECT {quote}{name}{quote}({operands})"
        try:
            t_env.sql_query(query)
        except (PenstockError, SqlParserError):
            continue
        except Exception as error:  # noqa: BLE001 - what is tested is that there is no other one
            pytest.fail(f"seed {seed}: {query}: {error!r}")


@pytest.mark.parametrize("call", ["`AND`(TRUE, FALSE)", "`=`(1, 2)", "MINUS_DATE(1, 2, 3)", "`CASE`(NULL, NULL)"])
def test_operators_are_no_functions(call: str) -> None:
    """Their names in backticks are unknown, as in Flink."""
    with pytest.raises(PenstockError, match="No match found for function signature"):
        TableEnvironment.create(EnvironmentSettings.in_streaming_mode()).sql_query(f"SELECT {call}")


@pytest.mark.parametrize("call", ["`CEILING`(DATE '2020-01-01', ARRAY[1])", "`FLOOR`(TIME '10:00:00', ARRAY[1])"])
def test_a_unit_that_is_no_word_is_refused(call: str) -> None:
    with pytest.raises(ValidationError, match=r"Cannot apply|Supported form|No match found|Invalid function call"):
        TableEnvironment.create(EnvironmentSettings.in_streaming_mode()).sql_query(f"SELECT {call}")
