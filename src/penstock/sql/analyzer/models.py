"""ML_PREDICT, ML_EVALUATE and VECTOR_SEARCH: table functions that take models and tables of vectors.

ML_PREDICT adds the columns that a model predicts to each row of a table. ML_EVALUATE predicts and compares the
predictions with a column of the table; its result is one row with a map of measures. VECTOR_SEARCH joins each row with
the rows of a table whose vectors are nearest to one of the row. See Flink's documents "Model Inference" and "Vector
Search".

The measures of ML_EVALUATE, which compare a model's predictions with labels, for each of Flink's tasks.

| task | measures |
| --- | --- |
| `regression` | `MAE`, `MSE`, `RMSE`, `R2` |
| `classification` | `ACCURACY`, and the means over all classes of `PRECISION`, `RECALL` and `F1` |
| `clustering` | `PURITY`, and the adjusted Rand index `ARI`, which is 0 for clusters by chance and 1 for equal ones |
| `embedding` | the means of the cosine, `COSINE`, and of the distance, `DISTANCE` |
| `text_generation` | `EXACT_MATCH`, and `TOKEN_F1`, the mean F1 of the words that both texts have |

Flink 2.3 checks calls of ML_EVALUATE and cannot run them, so the names of the measures are Penstock's. A row without a
label or without a prediction is left out, and a measure that is not defined is not in the map.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError, did_you_mean, short_repr
from penstock.base.time import parse_duration
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import Queries, RelationScope
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import ArrayType, DataType, DoubleType, FloatType, IntegralType, MapType, VarCharType
from penstock.sql.functions.type_rules import can_cast_implicitly
from penstock.sql.logical.nodes import (
    Aggregate,
    Filter,
    MLPredictTableFunction,
    Model,
    Node,
    PlanColumn,
    Project,
    RowSchema,
    Scan,
    UserAggregateCall,
    VectorSearchTableFunction,
)
from penstock.sql.parser import syntax, to_sql
from penstock.sql.typed import Constant, Typed
from penstock.sql.user_functions.classes import AggregateFunction
from penstock.sql.user_functions.definition import FunctionKind, UserFunction

_RESULT: Final = MapType(VarCharType(2_147_483_647), DoubleType())
_PAIR: Final = 2


class _Sums(AggregateFunction[dict[str, float], list[Any]]):
    """Adds numbers up for each pair: how many pairs there are, and then the sums."""

    def create_accumulator(self) -> list[Any]:
        """See `AggregateFunction`."""
        return [0, 0.0, 0.0, 0.0, 0.0]

    def accumulate(self, accumulator: list[Any], *args: Any) -> None:
        """See `AggregateFunction`."""
        label, prediction = args
        if label is None or prediction is None:
            return
        accumulator[0] += 1
        for index, value in enumerate(self.values(label, prediction), 1):
            accumulator[index] += value

    def values(self, label: Any, prediction: Any) -> tuple[float, ...]:
        """Return the numbers of a pair."""
        raise NotImplementedError


class _Regression(_Sums):
    def values(self, label: Any, prediction: Any) -> tuple[float, ...]:
        try:
            label, difference = float(label), float(prediction) - float(label)
        except (TypeError, ValueError) as error:
            raise WrongTypeError(
                f"ML_EVALUATE of a regression compares numbers, not {short_repr(label)} and {short_repr(prediction)}"
            ) from error
        return abs(difference), difference * difference, label, label * label

    def get_value(self, accumulator: list[Any]) -> dict[str, float]:
        """See `AggregateFunction`."""
        rows, absolute, squared, labels, squares = accumulator
        if not rows:
            return {}
        spread = squares - labels * labels / rows
        measures = {"MAE": absolute / rows, "MSE": squared / rows, "RMSE": math.sqrt(squared / rows)}
        return {**measures, "R2": 1 - squared / spread} if spread > 0 else measures


class _Embedding(_Sums):
    def values(self, label: Any, prediction: Any) -> tuple[float, ...]:
        if len(label) != len(prediction):
            raise WrongTypeError(f"ML_EVALUATE compares vectors of {len(label)} and of {len(prediction)} numbers")
        dot = sum(a * b for a, b in zip(label, prediction, strict=True))
        norms = math.hypot(*label) * math.hypot(*prediction)
        return (dot / norms if norms else 0.0), math.dist(label, prediction), float(norms > 0)

    def get_value(self, accumulator: list[Any]) -> dict[str, float]:
        """See `AggregateFunction`."""
        rows, cosines, distances, directed, _ = accumulator
        if not rows:
            return {}
        measures = {"COSINE": cosines / directed} if directed else {}
        return {**measures, "DISTANCE": distances / rows}


class _Text(_Sums):
    def values(self, label: Any, prediction: Any) -> tuple[float, ...]:
        wanted, given = str(label).split(), str(prediction).split()
        shared = (Counter(wanted) & Counter(given)).total()
        total = len(wanted) + len(given)
        return float(str(label).strip() == str(prediction).strip()), 2 * shared / total if total else 1.0

    def get_value(self, accumulator: list[Any]) -> dict[str, float]:
        """See `AggregateFunction`."""
        rows, exact, overlap, _, _ = accumulator
        return {"EXACT_MATCH": exact / rows, "TOKEN_F1": overlap / rows} if rows else {}


class _Counts(AggregateFunction[dict[str, float], list[Any]]):
    """Counts the rows of each pair of a label and a prediction."""

    def create_accumulator(self) -> list[Any]:
        """See `AggregateFunction`."""
        return [{}]

    def accumulate(self, accumulator: list[Any], *args: Any) -> None:
        """See `AggregateFunction`."""
        label, prediction = args
        if label is not None and prediction is not None:
            counts = accumulator[0]
            counts[label, prediction] = counts.get((label, prediction), 0) + 1


class _Classification(_Counts):
    def get_value(self, accumulator: list[Any]) -> dict[str, float]:
        """See `AggregateFunction`."""
        counts: dict[tuple[Any, Any], int] = accumulator[0]
        if not counts:
            return {}
        labels, predictions = _totals(counts)
        right = {name: counts.get((name, name), 0) for name in labels | predictions}
        precisions = [right[name] / predictions[name] if predictions[name] else 0.0 for name in right]
        recalls = [right[name] / labels[name] if labels[name] else 0.0 for name in right]
        scores = [_PAIR * right[name] / (labels[name] + predictions[name]) for name in right]
        return {
            "ACCURACY": sum(right.values()) / sum(counts.values()),
            "PRECISION": sum(precisions) / len(right),
            "RECALL": sum(recalls) / len(right),
            "F1": sum(scores) / len(right),
        }


class _Clustering(_Counts):
    def get_value(self, accumulator: list[Any]) -> dict[str, float]:
        """See `AggregateFunction`."""
        counts: dict[tuple[Any, Any], int] = accumulator[0]
        if not counts:
            return {}
        labels, clusters = _totals(counts)
        rows = sum(counts.values())
        largest: dict[Any, int] = {}
        for (_, cluster), count in counts.items():
            largest[cluster] = max(largest.get(cluster, 0), count)
        together = sum(math.comb(count, _PAIR) for count in counts.values())
        by_label, by_cluster = (sum(math.comb(count, _PAIR) for count in side.values()) for side in (labels, clusters))
        expected = by_label * by_cluster / math.comb(rows, _PAIR) if rows > 1 else 0.0
        most = (by_label + by_cluster) / _PAIR
        index = (together - expected) / (most - expected) if most != expected else 1.0
        return {"PURITY": sum(largest.values()) / rows, "ARI": index}


def _totals(counts: dict[tuple[Any, Any], int]) -> tuple[Counter[Any], Counter[Any]]:
    labels: Counter[Any] = Counter()
    predictions: Counter[Any] = Counter()
    for (label, prediction), count in counts.items():
        labels[label] += count
        predictions[prediction] += count
    return labels, predictions


#: by the name of the task
EVALUATIONS: Final[dict[str, type[AggregateFunction[dict[str, float], list[Any]]]]] = {
    "REGRESSION": _Regression,
    "CLUSTERING": _Clustering,
    "CLASSIFICATION": _Classification,
    "EMBEDDING": _Embedding,
    "TEXT_GENERATION": _Text,
}


def evaluation(task: str, label_type: DataType) -> UserFunction:
    """Return the aggregate function of a task, over labels and predictions of a type."""
    kinds = (label_type.nullable(), label_type.nullable())
    return UserFunction("ML_EVALUATE", FunctionKind.AGGREGATE, EVALUATIONS[task](), _RESULT, kinds)


#: the arguments of each function, in order, and how many of them are required
MODEL_FUNCTIONS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "ML_PREDICT": (("INPUT", "MODEL", "ARGS", "CONFIG"), 3),
    "ML_EVALUATE": (("INPUT", "MODEL", "LABEL", "ARGS", "TASK"), 5),
}
#: the signatures, as messages show them
_SIGNATURES: Final = {
    "ML_PREDICT": "ML_PREDICT(INPUT => {TABLE, ROW SEMANTIC TABLE}, MODEL => {MODEL}, ARGS => DESCRIPTOR, CONFIG => "
    "MAP<STRING, STRING>)",
    "ML_EVALUATE": "ML_EVALUATE(TABLE table_name, MODEL model_name, DESCRIPTOR(label_column), "
    "DESCRIPTOR(input_columns), task)",
    "VECTOR_SEARCH": "VECTOR_SEARCH(TABLE search_table, DESCRIPTOR(column_to_search), column_to_query, top_k, [MAP[]])",
}
ASYNC: Final = "async"
CONCURRENT: Final = "max-concurrent-operations"
TIMEOUT: Final = "timeout"
OUTPUT_MODE: Final = "output-mode"
OUTPUT_MODES: Final = ("ORDERED", "ALLOW_UNORDERED")

Arguments = Mapping[str, syntax.Expression]


def model_table(call: syntax.Call, queries: Queries) -> Node:
    """Return the plan of a call of ML_PREDICT or ML_EVALUATE. Raises `ValidationError` for invalid arguments."""
    names, required = MODEL_FUNCTIONS[call.name]
    arguments = named_arguments(call, names, required)
    plan = _table(call.name, arguments["INPUT"], queries)
    model = _model(arguments["MODEL"], queries)
    if call.name == "ML_EVALUATE":
        return _evaluated(plan, model, arguments, queries)
    columns = _columns(call.name, arguments["ARGS"], "Third")
    return predicted(plan, model, columns, read_config(arguments.get("CONFIG")), queries)


def _evaluated(plan: Node, model: Model, arguments: Arguments, queries: Queries) -> Node:
    """Return the plan of ML_EVALUATE: the measures of a model's predictions for the rows of a plan."""
    task = arguments["TASK"]
    if not isinstance(task, syntax.TextLiteral):
        raise _no_match("ML_EVALUATE")
    if task.value.upper() not in EVALUATIONS:
        raise ValidationError(f"Unsupported task: {task.value}. Supported tasks are: [{', '.join(EVALUATIONS)}].")
    labels = _columns("ML_EVALUATE", arguments["LABEL"], "Third")
    columns = _columns("ML_EVALUATE", arguments["ARGS"], "Fourth")
    if len(labels) != 1:
        raise ValidationError("Label descriptor must have exactly one column for evaluation.")
    if len(model.outputs) != 1:
        raise ValidationError("Model output must have exactly one field for evaluation.")
    if len(columns) != len(model.inputs):
        raise ValidationError(
            f"Number of input descriptor columns ({len(columns)}) does not match model input size "
            f"({len(model.inputs)})."
        )
    names = plan.schema.names
    for name in (*labels, *columns):
        if name not in names:
            raise UnknownNameError(f"Unknown identifier '{name}'{did_you_mean(name, names)}", name=name)
    kind = model.outputs[0].type
    label = plan.schema.field(names.index(labels[0]))
    if not can_cast_implicitly(label.type, kind):
        raise ValidationError(
            f"Label descriptor column type {label.type} cannot be assigned to model output type {kind} for evaluation."
        )
    rows = predicted(plan, model, columns, {}, queries)
    user = evaluation(task.value.upper(), kind)
    pair = (queries.calls.implicit(label, kind.nullable()), rows.schema.field(len(names)))
    compared = [PlanColumn(name, part.type) for name, part in zip(("label", "prediction"), pair, strict=True)]
    projected = Project(schema=RowSchema(tuple(compared)), input=rows, expressions=pair)
    call = UserAggregateCall(user.name, tuple(projected.schema.fields()), user.result_type, user=user)
    schema = RowSchema((PlanColumn("result", user.result_type),))
    return Aggregate(schema=schema, input=projected, keys=(), calls=(call,))


def predicted(
    plan: Node, model: Model, columns: Sequence[str], config: Mapping[str, str], queries: Queries
) -> MLPredictTableFunction:
    """Return the plan of a prediction for each row of a plan."""
    arguments = _arguments(plan, model, columns, queries)
    names = list(plan.schema.names)
    for column in model.outputs:
        names.append(column.name if column.name not in names else f"{column.name}0")
    twice = sorted({name for name in names[len(plan.schema) :] if names.count(name) > 1})
    if twice:
        raise ValidationError(f"Field names must be unique. Found duplicates: [{', '.join(twice)}]")
    added = [
        PlanColumn(name, column.type) for name, column in zip(names[len(plan.schema) :], model.outputs, strict=True)
    ]
    called = Model(model.path, model.inputs, model.outputs, tuple(config.items()), model.provider)
    schema = RowSchema((*plan.schema.columns, *added))
    return MLPredictTableFunction(schema=schema, input=plan, model=called, arguments=tuple(arguments))


VECTOR_SEARCH: Final = "VECTOR_SEARCH"
_SEARCH_ARGUMENTS: Final = ("SEARCH_TABLE", "COLUMN_TO_SEARCH", "COLUMN_TO_QUERY", "TOP_K", "CONFIG")
SCORE: Final = "score"


def is_vector_search(call: syntax.Expression) -> bool:
    """Return whether a call is one of VECTOR_SEARCH."""
    return isinstance(call, syntax.Call) and call.name == VECTOR_SEARCH


def vector_search(call: syntax.Expression, left: RelationScope, queries: Queries) -> VectorSearchTableFunction:
    """Return the plan of a call of VECTOR_SEARCH for each row of the left side.

    Raises `ValidationError` for invalid arguments.
    """
    assert isinstance(call, syntax.Call)
    if len(call.operands) < len(_SEARCH_ARGUMENTS) - 1:
        raise ValidationError(f"Invalid number of arguments to function '{VECTOR_SEARCH}'. Was expecting 4 arguments")
    arguments = named_arguments(call, _SEARCH_ARGUMENTS, len(_SEARCH_ARGUMENTS) - 1)
    scan = _searched(_table(call.name, arguments["SEARCH_TABLE"], queries, "SEARCH_TABLE"))
    column = _search_column(arguments["COLUMN_TO_SEARCH"], scan)
    wanted = scan.schema[column].type
    query = ScalarAnalyser(left, queries.calls).typed(arguments["COLUMN_TO_QUERY"])
    if not can_cast_implicitly(query.type, wanted):
        raise ValidationError(
            f"Can not cast the query column type {query.type} to target type {wanted}. Please keep the query column "
            "type is same to the search column type."
        )
    columns = [PlanColumn(column.name, column.type) for column in scan.schema]
    names = scan.schema.names
    score, number = SCORE, 0
    while score in names:
        score, number = f"{SCORE}{number}", number + 1
    return VectorSearchTableFunction(
        schema=RowSchema((*left.schema.columns, *columns, PlanColumn(score, DoubleType()))),
        input=left.plan,
        table=scan,
        column=column,
        query=queries.calls.implicit(query, wanted.nullable() if query.type.is_nullable else wanted),
        top_k=_top_k(arguments["TOP_K"], left, queries),
        settings=tuple(read_config(arguments.get("CONFIG")).items()),
    )


def _searched(plan: Node) -> Scan:
    """Return the scan of a search table, of which all columns are searched."""
    while isinstance(plan, Project) and list(plan.expressions) == list(plan.input.schema.fields()):
        plan = plan.input
    if isinstance(plan, Filter):
        raise UnsupportedError("VECTOR_SEARCH does not support filter on parameter search_table.")
    if not isinstance(plan, Scan):
        raise UnsupportedError(
            "Don't support calc on VECTOR_SEARCH node now: SEARCH_TABLE is a table of stored columns alone, which is "
            "searched whole"
        )
    return plan


def _search_column(argument: syntax.Expression, scan: Scan) -> int:
    if not isinstance(argument, syntax.DescriptorArgument):
        raise _no_match(VECTOR_SEARCH)
    if len(argument.columns) != 1 or len(argument.columns[0]) != 1:
        listed = ", ".join(f"`{'.'.join(path)}`" for path in argument.columns)
        raise ValidationError(
            "Expect parameter COLUMN_TO_SEARCH for VECTOR_SEARCH only contains one column, but multiple columns are "
            f"found in operand DESCRIPTOR({listed})."
        )
    name = argument.columns[0][0]
    names = scan.schema.names
    if name not in names:
        raise UnknownNameError(f"Unknown identifier '{name}'{did_you_mean(name, names)}", argument.at, name)
    kind = scan.schema[names.index(name)].type
    if not isinstance(kind, ArrayType) or not isinstance(kind.element_type, FloatType | DoubleType):
        raise ValidationError(
            f"Expect search column `{name}` type is ARRAY<FLOAT> or ARRAY<DOUBLE>, but its type is {kind}."
        )
    return names.index(name)


def _top_k(argument: syntax.Expression, left: RelationScope, queries: Queries) -> int:
    typed = ScalarAnalyser(left, queries.calls).typed(argument)
    top_k = typed.value if isinstance(typed, Constant) and isinstance(typed.type, IntegralType) else None
    if not isinstance(top_k, int):
        raise ValidationError(
            f"Expect parameter top_k is an INTEGER NOT NULL literal in VECTOR_SEARCH, but it is {to_sql(argument)} "
            f"with type {typed.type}."
        )
    if top_k <= 0:
        raise ValidationError(f"Parameter top_k must be greater than 0, but was {top_k}.")
    return top_k


def _arguments(plan: Node, model: Model, columns: Sequence[str], queries: Queries) -> list[Typed]:
    """Return the columns of the model's input."""
    if len(columns) != len(model.inputs):
        raise ValidationError(
            f"Number of descriptor columns ({len(columns)}) does not match model input size ({len(model.inputs)})."
        )
    names = plan.schema.names
    arguments: list[Typed] = []
    for position, (name, wanted) in enumerate(zip(columns, model.inputs, strict=True)):
        if name not in names:
            raise UnknownNameError(
                f"Descriptor column '{name}' not found in table columns. Available columns: {', '.join(names)}.",
                name=name,
            )
        column = plan.schema.field(names.index(name))
        if not _fits(column.type, wanted.type):
            raise ValidationError(
                f"Descriptor column '{name}' type {column.type} cannot be assigned to model input type {wanted.type} "
                f"at position {position}."
            )
        arguments.append(queries.calls.implicit(column, wanted.type))
    return arguments


def _fits(source: DataType, to: DataType) -> bool:
    return can_cast_implicitly(source, to) and (to.is_nullable or not source.is_nullable)


# --- the arguments ----------------------------------------------------------------------------------------------------


def named_arguments(call: syntax.Call, names: Sequence[str], required: int) -> Arguments:
    """Return the arguments of a call by name. Raises `ValidationError` for missing and surplus ones."""
    arguments: dict[str, syntax.Expression] = {}
    is_named = any(isinstance(operand, syntax.NamedArgument) for operand in call.operands)
    if len(call.operands) > len(names):
        raise _no_match(call.name)
    for position, operand in enumerate(call.operands):
        if isinstance(operand, syntax.NamedArgument):
            name, value = operand.name.upper(), operand.value
        elif is_named:
            raise ValidationError(f"{call.name}: either all arguments have names, or none")
        else:
            name, value = names[position], operand
        if name not in names:
            raise ValidationError(
                f"{call.name} has no argument '{name}'{did_you_mean(name, names)}: {_signature(call)}"
            )
        if name in arguments:
            raise ValidationError(f"{call.name}: argument '{name}' is there twice")
        if not isinstance(value, syntax.DefaultArgument):
            arguments[name] = value
        elif name in names[:required]:
            raise ValidationError("DEFAULT is only allowed for optional parameters")
    if any(name not in arguments for name in names[:required]):
        raise _no_match(call.name)
    return arguments


def _signature(call: syntax.Call) -> str:
    return _SIGNATURES[call.name]


def _no_match(name: str) -> ValidationError:
    return ValidationError(
        f"No match found for function signature {name}. Supported signatures are:\n{_SIGNATURES[name]}"
    )


def _table(name: str, argument: syntax.Expression, queries: Queries, parameter: str = "INPUT") -> Node:
    if isinstance(argument, syntax.Subquery):
        return queries.query(argument.query)
    if not isinstance(argument, syntax.TableArgument):
        raise ValidationError(f"{name} takes a table for argument '{parameter}': TABLE name, or (query)")
    if argument.partition:
        raise ValidationError(
            "Only tables with set semantics may be partitioned. Invalid PARTITION BY clause in the 0-th operand of "
            f"table function '{name}'"
        )
    if argument.order:
        raise ValidationError(
            "Only tables with set semantics may be ordered. Invalid ORDER BY clause in the 0-th operand of table "
            f"function '{name}'"
        )
    return queries.query(argument.query)


def _model(argument: syntax.Expression, queries: Queries) -> Model:
    if isinstance(argument, PlannedModel):
        return argument.model
    if not isinstance(argument, syntax.ModelArgument):
        raise ValidationError(
            "Invalid argument value. Argument 'MODEL' expects a model to be passed: write MODEL and its name."
        )
    model = queries.tables.model(argument.path)
    if model is None:
        name = argument.path[-1]
        where = f" within '{'.'.join(argument.path[:-1])}'" if len(argument.path) > 1 else ""
        near = did_you_mean(name, queries.tables.model_names())
        raise UnknownNameError(f"Object '{name}' not found{where}: there is no such model{near}", argument.at, name)
    return model


@dataclass(frozen=True, slots=True)
class PlannedModel(syntax.Expression):
    """A model that the Table API passes to a function."""

    model: Model


def _columns(name: str, argument: syntax.Expression, position: str) -> list[str]:
    if not isinstance(argument, syntax.DescriptorArgument):
        raise _no_match(name)
    if any(len(path) > 1 for path in argument.columns):
        raise ValidationError(f"{position} argument must be a descriptor with simple column names for {name} function.")
    return [path[0] for path in argument.columns]


def read_config(argument: syntax.Expression | None) -> dict[str, str]:
    """Return the options of a call, with the checks that Flink makes: unknown keys have no effect."""
    if argument is None:
        return {}
    is_map = isinstance(argument, syntax.Collection) and argument.root == "MAP"
    items = argument.items if isinstance(argument, syntax.Collection) and is_map else None
    if not isinstance(items, tuple):
        raise ValidationError("Config param should be a MAP: MAP['async', 'true']")
    texts = [item.value for item in items if isinstance(item, syntax.TextLiteral)]
    if len(texts) != len(items) or len(texts) % 2:
        raise ValidationError("Config param can only be a MAP of string literals: MAP['async', 'true']")
    config = dict(zip(texts[::2], texts[1::2], strict=True))
    check_config(config)
    return config


def check_config(config: Mapping[str, str]) -> None:
    """Raise `ValidationError` for a wrong value of an option of a call."""
    if config.get(ASYNC, "true").lower() not in ("true", "false"):
        raise ValidationError(
            f"Invalid runtime config option '{ASYNC}'. Unrecognized option for boolean: {config[ASYNC]}. Expected "
            "either true or false(case insensitive)"
        )
    if CONCURRENT in config:
        text = config[CONCURRENT].strip()
        if not text.removeprefix("-").isdecimal() or int(text) <= 0:
            raise ValidationError(
                f"Invalid runtime config option '{CONCURRENT}'. Its value should be positive integer but was {text}."
            )
    if TIMEOUT in config:
        try:
            parse_duration(config[TIMEOUT])
        except (WrongValueError, ValueError) as error:
            raise ValidationError(f"Invalid runtime config option '{TIMEOUT}': {error}") from error
    if config.get(OUTPUT_MODE, OUTPUT_MODES[0]).upper() not in OUTPUT_MODES:
        raise ValidationError(
            f"Invalid runtime config option '{OUTPUT_MODE}'. Could not parse value '{config[OUTPUT_MODE]}'. Expected "
            f"one of: [[{', '.join(OUTPUT_MODES)}]]"
        )
