"""ML_PREDICT: its arguments, checked as Flink checks them, the columns of its result, and models in Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.base.errors import JobExecutionError
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.properties import state_id
from penstock.sql.models.provider import ModelProvider
from penstock.table import (
    DataTypes,
    EnvironmentSettings,
    ModelDescriptor,
    PredictFunction,
    Row,
    Schema,
    TableEnvironment,
)
from penstock.table.expressions import col, descriptor, map_

TABLE = (
    "CREATE TABLE t (a INT, b BIGINT, c STRING, v VARCHAR(5), d DECIMAL(10, 3), arr ARRAY<FLOAT>, ts TIMESTAMP(3), "
    "PRIMARY KEY (a) NOT ENFORCED, WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'number-of-rows' = '2')"
)


def schema(*columns: tuple[str, str]) -> Schema:
    builder = Schema.new_builder()
    for name, kind in columns:
        builder.column(name, kind)
    return builder.build()


def model(answer: Any, *inputs: tuple[str, str], outputs: tuple[tuple[str, str], ...] = (("e", "STRING"),)) -> Any:
    return ModelDescriptor.for_provider(answer).input_schema(schema(*inputs)).output_schema(schema(*outputs)).build()


@pytest.fixture
def t_env() -> TableEnvironment:
    settings = EnvironmentSettings.in_streaming_mode()
    settings.get_configuration().set_string("execution.target", "local")
    t_env = TableEnvironment.create(settings)
    t_env.execute_sql(TABLE)
    t_env.create_temporary_view("words", t_env.from_elements([(1, "tea"), (2, "rum")], ["id", "word"]))
    t_env.create_temporary_model("sync", model(said, ("a", "INT"), ("b", "BIGINT")))
    t_env.create_temporary_model("later", model(said_later, ("a", "INT"), ("b", "BIGINT")))
    t_env.create_temporary_model("loud", model(shouted, ("w", "STRING")))
    return t_env


def said(rows: list[Row]) -> list[str]:
    return [f"{row.a} {row.b}" for row in rows]


async def said_later(rows: list[Row]) -> list[str]:
    return said(rows)


def shouted(rows: list[Row]) -> list[str]:
    return [row.w.upper() for row in rows]


def collected(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in t_env.execute_sql(query).collect()]


CALLS = [
    "ML_PREDICT(TABLE words, MODEL loud, DESCRIPTOR(word))",
    "TABLE(ML_PREDICT(TABLE words, MODEL default_catalog.default_database.loud, DESCRIPTOR(word), DEFAULT))",
    "TABLE(ML_PREDICT((SELECT * FROM words), MODEL loud, DESCRIPTOR(`word`), MAP['async', 'false']))",
    "TABLE(ML_PREDICT(INPUT => TABLE words, MODEL => MODEL loud, ARGS => DESCRIPTOR(word)))",
    "TABLE(ML_PREDICT(CONFIG => MAP['async', 'true'], ARGS => DESCRIPTOR(word), MODEL => MODEL loud, INPUT => "
    "TABLE words))",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call(t_env: TableEnvironment, call: str) -> None:
    assert collected(t_env, f"SELECT * FROM {call}") == [(1, "tea", "TEA"), (2, "rum", "RUM")]


@pytest.mark.parametrize("options", [None, {"async": "true"}, {"async": "false"}, {"output-mode": "allow_unordered"}])
def test_a_model_of_the_table_api(t_env: TableEnvironment, options: dict[str, str] | None) -> None:
    loud = t_env.from_model("loud")
    assert loud.get_resolved_input_schema().get_column_names() == ["w"]
    assert loud.get_resolved_output_schema().get_column_names() == ["e"]
    result = loud.predict(t_env.from_path("words"), descriptor("word"), options)
    assert sorted(map(tuple, result.execute().collect())) == [(1, "tea", "TEA"), (2, "rum", "RUM")]


def test_calls_of_the_table_api_with_and_without_names(t_env: TableEnvironment) -> None:
    words, loud = t_env.from_path("words"), t_env.from_model("loud")
    config = map_("async", "true")
    named = t_env.from_call(
        "ML_PREDICT",
        words.as_argument("INPUT"),
        loud.as_argument("MODEL"),
        descriptor("word").as_argument("ARGS"),
        config.as_argument("CONFIG"),
    )
    expected = [(1, "tea", "TEA"), (2, "rum", "RUM")]
    for table in (named, t_env.from_call("ML_PREDICT", words, loud, descriptor("word"))):
        assert list(map(tuple, table.execute().collect())) == expected
    anonymous = t_env.from_model(model(shouted, ("w", "STRING"), outputs=(("loud", "STRING"),)))
    longer = words.filter(col("id") > 1)
    assert list(map(tuple, anonymous.predict(longer, ["word"]).execute().collect())) == [(2, "rum", "RUM")]
    assert t_env.list_models() == ["later", "loud", "sync"]


def test_columns_of_the_result(t_env: TableEnvironment) -> None:
    """Names that the table has get a number, NOT NULL stays, and so do time attributes."""
    outputs = (("a", "STRING NOT NULL"), ("q", "INT"))
    t_env.create_temporary_model("nn", model(said, ("x", "INT NOT NULL"), outputs=outputs))
    columns = t_env.sql_query("SELECT * FROM ML_PREDICT(TABLE t, MODEL nn, DESCRIPTOR(a))")._plan.schema.columns
    shown = [(column.name, str(column)) for column in columns]
    assert shown[0] == ("a", "INT NOT NULL")
    assert shown[-3:] == [("ts", "TIMESTAMP(3) *ROWTIME*"), ("a0", "STRING NOT NULL"), ("q", "INT")]
    with pytest.raises(ValidationError, match=r"Field names must be unique. Found duplicates: \[e0\]"):
        t_env.explain_sql(
            "SELECT * FROM ML_PREDICT((SELECT a, b, c AS e, c AS e0 FROM t), MODEL sync, DESCRIPTOR(a, b))"
        )


def test_columns_that_no_one_reads_are_not_read(t_env: TableEnvironment) -> None:
    text = t_env.explain_sql("SELECT e FROM ML_PREDICT(TABLE t, MODEL sync, DESCRIPTOR(a, b))")
    invocation = (
        "ML_PREDICT(TABLE(#0), Model(MODEL default_catalog.default_database.sync), DESCRIPTOR(a, b), DEFAULT())"
    )
    assert f"invocation=[{invocation}], select=[a, b, e], changelogMode=[I])" in text


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("BIGINT", "a"),
        ("STRING", "v"),
        ("VARCHAR(3)", "c"),
        ("DOUBLE", "a"),
        ("DOUBLE", "d"),
        ("TIMESTAMP(3)", "ts"),
        ("ARRAY<DOUBLE>", "arr"),
    ],
)
def test_columns_that_a_model_takes(t_env: TableEnvironment, kind: str, column: str) -> None:
    t_env.create_temporary_model("taking", model(said, ("x", kind)))
    t_env.explain_sql(f"SELECT * FROM ML_PREDICT(TABLE t, MODEL taking, DESCRIPTOR({column}))")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("TABLE t, MODEL sync", "No match found for function signature ML_PREDICT"),
        ("TABLE t, MODEL sync, 'a,b'", "No match found for function signature ML_PREDICT"),
        ("TABLE t, MODEL sync, DESCRIPTOR(a, b), 'async'", "Config param should be a MAP"),
        ("TABLE t, MODEL sync, DESCRIPTOR(a, b), MAP['async', 'true'], 1", "No match found for function signature"),
        (
            "TABLE t, MODEL sync, DESCRIPTOR(a, b, c)",
            "Number of descriptor columns (3) does not match model input size (2).",
        ),
        ("TABLE t, MODEL sync, DESCRIPTOR(a)", "Number of descriptor columns (1) does not match model input size (2)."),
        (
            "TABLE t, MODEL sync, DESCRIPTOR(a, x)",
            "Descriptor column 'x' not found in table columns. Available columns: a, b, c, v, d, arr, ts",
        ),
        (
            "TABLE t, MODEL sync, DESCRIPTOR(a, c)",
            "Descriptor column 'c' type STRING cannot be assigned to model input type BIGINT at position 1.",
        ),
        (
            "TABLE t, MODEL sync, DESCRIPTOR(b, a)",
            "Descriptor column 'b' type BIGINT cannot be assigned to model input type INT at position 0.",
        ),
        (
            "TABLE t, MODEL loud, DESCRIPTOR(a)",
            "Descriptor column 'a' type INT NOT NULL cannot be assigned to model input type STRING at position 0.",
        ),
        ("TABLE t, MODEL sync, DESCRIPTOR(t.a, b)", "Third argument must be a descriptor with simple column names"),
        (
            "TABLE t, MODEL syncc, DESCRIPTOR(a, b)",
            "Object 'syncc' not found: there is no such model; did you mean 'sync'?",
        ),
        ("TABLE t, MODEL t, DESCRIPTOR(a, b)", "Object 't' not found"),
        ("TABLE t, 'sync', DESCRIPTOR(a, b)", "Argument 'MODEL' expects a model to be passed"),
        ("TABLE nope, MODEL sync, DESCRIPTOR(a, b)", "Object 'nope' not found"),
        ("TABLE t PARTITION BY a, MODEL sync, DESCRIPTOR(a, b)", "Only tables with set semantics may be partitioned."),
        ("INPUT => TABLE t, MODEL => MODEL sync", "No match found for function signature"),
        ("INPUT => TABLE t, MODEL => MODEL sync, ARGS => DEFAULT", "DEFAULT is only allowed for optional parameters"),
        ("TABLE t, MODEL sync, DESCRIPTOR(a, b), MAP['async', 'yes']", "Unrecognized option for boolean: yes."),
        (
            "TABLE t, MODEL later, DESCRIPTOR(a, b), MAP['max-concurrent-operations', '-1']",
            "option 'max-concurrent-operations'. Its value should be positive integer but was -1",
        ),
        ("TABLE t, MODEL later, DESCRIPTOR(a, b), MAP['timeout', 'abc']", "Invalid runtime config option 'timeout'"),
        (
            "TABLE t, MODEL later, DESCRIPTOR(a, b), MAP['output-mode', 'x']",
            "Expected one of: [[ORDERED, ALLOW_UNORDERED]]",
        ),
        (
            "TABLE t, MODEL later, DESCRIPTOR(a, b), MAP['async', c]",
            "Config param can only be a MAP of string literals",
        ),
        ("TABLE t, MODEL later, DESCRIPTOR(a, b), MAP['async', 'false']", "Require sync mode, but model provider"),
    ],
)
def test_errors(t_env: TableEnvironment, arguments: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        t_env.explain_sql(f"SELECT * FROM ML_PREDICT({arguments})")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'a' = 'b'", "Model options of default_catalog.default_database.m do not contain an option key 'provider'"),
        ("'provider' = 'opnai'", "did you mean 'openai'?"),
        ("'provider' = 'python'", "Missing required options are: class"),
        ("'provider' = 'python', 'class' = 'tests.table.models.test_ml_predict.Nope'", "there is no 'Nope' in module"),
        ("'provider' = 'python', 'class' = 'no_such_module.Nope'", "cannot import 'no_such_module.Nope'"),
        ("'provider' = 'python', 'class' = 'penstock.table.Schema'", "has no method predict(rows)"),
        ("'provider' = 'openai', 'endpoint' = 'http://h/embeddings'", "Missing required options are: api-key, model"),
        ("'provider' = 'openai', 'endpoint' = 'http://h/x'", "it must end in chat/completions or embeddings"),
        ("'provider' = 'openai', 'endpoint' = 'h/embeddings', 'api-key' = 'k', 'model' = 'm'", "an endpoint is a URL"),
    ],
)
def test_errors_of_options(t_env: TableEnvironment, options: str, message: str) -> None:
    t_env.execute_sql(f"CREATE MODEL m INPUT (w STRING) OUTPUT (e ARRAY<FLOAT>) WITH ({options})")
    with pytest.raises(ValidationError) as error:
        t_env.explain_sql("SELECT * FROM ML_PREDICT(TABLE words, MODEL m, DESCRIPTOR(word))")
    assert message in str(error.value)


def test_changes_are_rejected(t_env: TableEnvironment) -> None:
    query = "SELECT * FROM ML_PREDICT((SELECT a, COUNT(*) AS b FROM t GROUP BY a), MODEL sync, DESCRIPTOR(a, b))"
    message = "MLPredictTableFunction doesn't support consuming update changes which is produced by node Aggregate"
    with pytest.raises(ValidationError, match=message):
        t_env.explain_sql(query)


class Counted(PredictFunction):
    """Tells how often it was created and opened."""

    created = 0
    opened = 0
    closed = 0

    def __init__(self) -> None:
        Counted.created += 1

    def open(self, context: Any) -> None:
        Counted.opened += 1
        self.sizes: list[int] = []

    def predict(self, rows: list[Row]) -> list[Any]:
        self.sizes.append(len(rows))
        return [(row.w, max(self.sizes), self.options["greeting"]) for row in rows]

    def close(self) -> None:
        Counted.closed += 1


def test_a_class_is_loaded_once_a_worker(t_env: TableEnvironment) -> None:
    options = "'provider' = 'python', 'class' = 'tests.table.models.test_ml_predict.Counted', 'greeting' = 'hello'"
    columns = "INPUT (w STRING) OUTPUT (w STRING, size INT, g STRING)"
    t_env.execute_sql(f"CREATE MODEL counted {columns} WITH ({options}, 'batch-size' = '3')")
    t_env.get_config().set("parallelism.default", "2")
    elements = t_env.from_elements([(f"w{number}",) for number in range(20)], ["w"])
    t_env.create_temporary_view("many", elements)
    before = Counted.created, Counted.opened, Counted.closed
    query = "SELECT * FROM ML_PREDICT(TABLE many, MODEL counted, DESCRIPTOR(w)) UNION ALL SELECT * FROM ML_PREDICT("
    rows = collected(t_env, f"{query}(SELECT w FROM many WHERE w <> 'w1'), MODEL counted, DESCRIPTOR(w))")
    assert len(rows) == 39
    assert {row[3] for row in rows} == {"hello"}
    assert {row[2] for row in rows} <= {1, 2, 3}
    assert (Counted.created - before[0], Counted.opened - before[1], Counted.closed - before[2]) == (1, 1, 1)


def test_any_number_of_rows_for_a_row(t_env: TableEnvironment) -> None:
    """A list stands for several rows, None for none, and an ARRAY is given in a tuple."""

    def answer(rows: list[Row]) -> list[Any]:
        return [None if row.id == 1 else [(row.word, [1.5]), Row(row.word + "!", None)] for row in rows]

    outputs = (("word", "STRING"), ("vector", "ARRAY<FLOAT>"))
    t_env.create_temporary_model("many", model(answer, ("id", "BIGINT"), ("word", "STRING"), outputs=outputs))
    rows = collected(t_env, "SELECT * FROM ML_PREDICT(TABLE words, MODEL `many`, DESCRIPTOR(id, word))")
    assert rows == [(2, "rum", "rum", [1.5]), (2, "rum", "rum!", None)]


class Columns:
    """Works on columns."""

    def predict_arrow(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pc.utf8_length(columns.column("w"))], ["length"])


def test_a_model_of_columns(t_env: TableEnvironment) -> None:
    t_env.create_temporary_model("length", model(Columns, ("w", "STRING"), outputs=(("n", "BIGINT"),)))
    assert collected(t_env, "SELECT n FROM ML_PREDICT(TABLE words, MODEL length, DESCRIPTOR(word))") == [(3,), (3,)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: ["x"], "predict must return a result for each of 2 rows, not 1"),
        (lambda rows: [1, 2], "it predicted 1 (int), which is no STRING, as column e is"),
        (lambda rows: [1 / 0 for _ in rows], "ZeroDivisionError"),
    ],
)
def test_wrong_answers_fail_the_job(t_env: TableEnvironment, answer: Any, message: str) -> None:
    t_env.create_temporary_model("wrong", model(answer, ("w", "STRING")))
    with pytest.raises(JobExecutionError) as error:
        collected(t_env, "SELECT * FROM ML_PREDICT(TABLE words, MODEL wrong, DESCRIPTOR(word))")
    assert message in str(error.value)
    assert "default_catalog.default_database.wrong" in str(error.value)


def test_providers_of_a_program(t_env: TableEnvironment) -> None:
    seen: list[Any] = []

    def create(context: Any) -> ModelProvider:
        seen.append((context.path[2], context.options["size"], context.inputs.names, context.outputs.names))
        return ModelProvider()

    t_env.register_model_provider("mine", create)
    t_env.execute_sql("CREATE MODEL m INPUT (w STRING) OUTPUT (e STRING) WITH ('provider' = 'MINE', 'size' = '3')")
    t_env.explain_sql("SELECT * FROM ML_PREDICT(TABLE words, MODEL m, DESCRIPTOR(word), MAP['x', 'y'])")
    assert seen[0] == ("m", "3", ["w"], ["e"])


@pytest.mark.spark
def test_batches_ask_from_the_tasks_of_spark() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    t_env.create_temporary_view("words", t_env.from_elements([(1, "tea"), (2, "rum")], ["id", "word"]))

    async def later(rows: list[Row]) -> list[Any]:
        return [[row.w, row.w] if row.w == "rum" else None for row in rows]

    t_env.create_temporary_model("loud", model(lambda rows: [row.w.upper() for row in rows], ("w", "STRING")))
    t_env.create_temporary_model("twice", model(later, ("w", "STRING")))
    query = "SELECT * FROM ML_PREDICT(TABLE words, MODEL {}, DESCRIPTOR(word))"
    assert sorted(collected(t_env, query.format("loud"))) == [(1, "tea", "TEA"), (2, "rum", "RUM")]
    assert sorted(collected(t_env, query.format("twice"))) == [(2, "rum", "rum"), (2, "rum", "rum")]


# --- ML_EVALUATE ------------------------------------------------------------------------------------------------------

NUMBERS = [(1.0, 1.0), (2.0, 3.0), (3.0, 5.0), (4.0, None)]
CLASSES = [("a", "a"), ("a", "b"), ("b", "b"), ("c", "b"), (None, "a")]


def evaluated(t_env: TableEnvironment, pairs: list[tuple[Any, Any]], kind: str, task: str) -> dict[str, float]:
    """The last result of a model that predicts the second of each pair."""
    rows = [(number, label) for number, (label, _) in enumerate(pairs)]
    fields = [DataTypes.FIELD("id", DataTypes.INT()), DataTypes.FIELD("label", parse_data_type(kind))]
    t_env.create_temporary_view("labelled", t_env.from_elements(rows, DataTypes.ROW(fields)))
    answers = [prediction for _, prediction in pairs]
    foretell = model(lambda rows: [(answers[row.id],) for row in rows], ("id", "INT"), outputs=(("p", kind),))
    t_env.create_temporary_model("foretelling", foretell)
    call = "INPUT => TABLE labelled, MODEL => MODEL foretelling, LABEL => DESCRIPTOR(label), ARGS => DESCRIPTOR(id)"
    result = t_env.sql_query(f"SELECT * FROM TABLE(ML_EVALUATE({call}, TASK => '{task}'))")
    assert [(column.name, str(column)) for column in result._plan.schema] == [("result", "MAP<STRING, DOUBLE>")]
    return {key: round(value, 6) for key, value in list(result.execute().collect())[-1][0].items()}


@pytest.mark.parametrize(
    ("pairs", "kind", "task", "expected"),
    [
        (NUMBERS, "DOUBLE", "regression", {"MAE": 1.0, "MSE": 1.666667, "RMSE": 1.290994, "R2": -1.5}),
        (
            CLASSES,
            "STRING",
            "Classification",
            {"ACCURACY": 0.5, "PRECISION": 0.444444, "RECALL": 0.5, "F1": 0.388889},
        ),
        ([("x", "1"), ("x", "1"), ("y", "2"), ("y", "2")], "STRING", "clustering", {"PURITY": 1.0, "ARI": 1.0}),
        ([([1.0, 0.0], [0.0, 2.0]), ([1.0, 0.0], [3.0, 0.0])], "ARRAY<DOUBLE>", "embedding",
         {"COSINE": 0.5, "DISTANCE": 2.118034}),
        ([("a b", "a b"), ("a b", "a c")], "STRING", "text_generation", {"EXACT_MATCH": 0.5, "TOKEN_F1": 0.75}),
        ([(None, "x")], "STRING", "text_generation", {}),
    ],
)  # fmt: skip
def test_measures(t_env: TableEnvironment, pairs: list[Any], kind: str, task: str, expected: dict[str, float]) -> None:
    assert evaluated(t_env, pairs, kind, task) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "DESCRIPTOR(c), DESCRIPTOR(a, b), 'nope'",
            "Unsupported task: nope. Supported tasks are: [REGRESSION, CLUSTERING",
        ),
        ("DESCRIPTOR(c), 'a,b', 'regression'", "No match found for function signature ML_EVALUATE"),
        ("DESCRIPTOR(label), DESCRIPTOR(a, b), 'regression'", "Unknown identifier 'label'"),
        (
            "DESCRIPTOR(d), DESCRIPTOR(a, b), 'regression'",
            "Label descriptor column type DECIMAL(10, 3) cannot be assigned to model output type STRING",
        ),
        (
            "DESCRIPTOR(c), DESCRIPTOR(a), 'regression'",
            "Number of input descriptor columns (1) does not match model input",
        ),
        (
            "DESCRIPTOR(c, v), DESCRIPTOR(a, b), 'regression'",
            "Label descriptor must have exactly one column for evaluation.",
        ),
        ("DESCRIPTOR(c), DESCRIPTOR(a, b)", "No match found for function signature ML_EVALUATE"),
    ],
)
def test_errors_of_evaluations(t_env: TableEnvironment, arguments: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        t_env.explain_sql(f"SELECT * FROM TABLE(ML_EVALUATE(TABLE t, MODEL sync, {arguments}))")
    assert message in str(error.value)
    t_env.create_temporary_model("two", model(said, ("a", "INT"), outputs=(("x", "INT"), ("y", "INT"))))
    with pytest.raises(ValidationError, match="Model output must have exactly one field for evaluation"):
        t_env.explain_sql("SELECT * FROM ML_EVALUATE(TABLE t, MODEL two, DESCRIPTOR(a), DESCRIPTOR(a), 'regression')")


def test_the_options_of_a_model_may_change_without_its_state(t_env: TableEnvironment) -> None:
    """The id of the state depends on the query, and not on options of the model or of the call."""
    given = "INPUT (w STRING) OUTPUT (e STRING) WITH ('provider' = 'openai', 'endpoint' = 'http://h/chat/completions', "
    t_env.execute_sql(f"CREATE MODEL chat {given} 'api-key' = 'before', 'model' = 'm')")

    def state_of(config: str) -> str:
        query = f"SELECT * FROM ML_PREDICT(TABLE words, MODEL chat, DESCRIPTOR(word), {config})"
        return state_id(t_env.sql_query(query)._plan, "ML Predict")

    before = state_of("MAP['async', 'true']")
    t_env.execute_sql("ALTER MODEL chat SET ('api-key' = 'after')")
    assert state_of("MAP['max-concurrent-operations', '3']") == before
    renamed = given.replace("e STRING", "f STRING")
    t_env.execute_sql(f"CREATE OR REPLACE MODEL chat {renamed} 'api-key' = 'k', 'model' = 'n')")
    assert state_of("DEFAULT") == before
    t_env.create_temporary_model("chat", model(said, ("w", "STRING"), outputs=(("e", "INT"),)))
    assert state_of("DEFAULT") != before
