"""The measures of ML_EVALUATE, which compare a model's predictions with labels, for each of Flink's tasks.

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
from typing import Any, Final

from penstock.base.errors import WrongTypeError, short_repr
from penstock.sql.data.types import DataType, DoubleType, MapType, VarCharType
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
