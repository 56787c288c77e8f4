"""The models of Flink's test programs: what the provider `values` of Flink's tests answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tests.table.flink_values import held

from penstock.sql.catalogs.catalog import CatalogModel
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import DataType
from penstock.sql.models.provider import AsyncPredictor, ModelProvider, Predictions, Predictor
from penstock.sql.parser import parse_statement, statements
from penstock.sql.session.session import TableSession
from penstock.sql.statements.models import resolved
from penstock.sql.statements.run import run

Answers = Mapping[str, Sequence[Sequence[Any]]]


class ValuesPredictor(Predictor):
    """Answers from rows: `answers` has the predictions of each row of inputs, by its text."""

    def __init__(self, answers: Answers, inputs: Sequence[DataType], outputs: Sequence[DataType]) -> None:
        self._answers, self._inputs, self._outputs = answers, inputs, outputs

    def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `Predictor`."""
        columns = [to_values(column, kind) for column, kind in zip(inputs.columns, self._inputs, strict=True)]
        pairs = [
            (number, row)
            for number, values in enumerate(zip(*columns, strict=True))
            for row in self._answers[repr(list(values))]
        ]
        arrays = [to_column([row[index] for _, row in pairs], kind) for index, kind in enumerate(self._outputs)]
        return Predictions(arrays, np.array([number for number, _ in pairs], np.int64))


class LaterPredictor(AsyncPredictor):
    """The same, later."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    async def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `AsyncPredictor`."""
        return self._predictor.predict(inputs)


class ValuesProvider(ModelProvider):
    """Answers later if the model's option `async` says so, else at once."""

    def __init__(self, predictor: ValuesPredictor, is_later: bool) -> None:
        self._predictor, self._is_later = predictor, is_later

    def predictor(self) -> Predictor | None:
        """See `ModelProvider`."""
        return None if self._is_later else self._predictor

    def async_predictor(self) -> AsyncPredictor | None:
        """See `ModelProvider`."""
        return LaterPredictor(self._predictor) if self._is_later else None


def create_model(session: TableSession, model: Mapping[str, Any]) -> None:
    """Create a model of a program."""
    options = ", ".join(f"'{key}' = '{value}'" for key, value in {"provider": "values", **model["options"]}.items())
    inputs, outputs = ", ".join(model["input"]), ", ".join(model["output"])
    text = f"CREATE MODEL `{model['name']}` INPUT ({inputs}) OUTPUT ({outputs}) WITH ({options})"
    statement = parse_statement(text)
    assert isinstance(statement, statements.Create)
    run(session, statement)
    entry = session.manager.find_model((model["name"],))
    assert entry is not None
    session.manager.drop_model((model["name"],), False, False)
    session.manager.create_model((model["name"],), _with_answers(session, entry[1], model), False)


def _with_answers(session: TableSession, created: CatalogModel, model: Mapping[str, Any]) -> CatalogModel:
    inputs, outputs = (
        [column.data_type for column in resolved(session, schema).columns]
        for schema in (created.input_schema, created.output_schema)
    )
    answers = {repr(_row(given, inputs)): [_row(row, outputs) for row in rows] for given, rows in model["data"]}
    provider = ValuesProvider(ValuesPredictor(answers, inputs, outputs), created.options.get("async") == "true")
    return CatalogModel(created.input_schema, created.output_schema, created.options, created.comment, provider)


def _row(row: Sequence[Any], kinds: Sequence[DataType]) -> list[Any]:
    return [held(value, kind) for value, kind in zip(row[1:], kinds, strict=True)]
