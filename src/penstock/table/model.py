"""Models in the Table API: `ModelDescriptor`, `Model`, and the methods of a table environment for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.config_options import ConfigOption, render
from penstock.base.errors import WrongTypeError
from penstock.sql.analyzer.from_clause import TABLE_FUNCTIONS
from penstock.sql.analyzer.models import PlannedModel, check_config, predicted
from penstock.sql.analyzer.queries import PlannedQuery
from penstock.sql.catalogs.catalog import CatalogModel
from penstock.sql.catalogs.columns import ResolvedSchema, Schema
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.builder import to_node
from penstock.sql.logical.nodes import Model as PlanModel
from penstock.sql.logical.nodes import Node
from penstock.sql.models.provider import PredictFunction, ProviderFactory
from penstock.sql.parser import parse_path, syntax
from penstock.sql.session.session import TableSession
from penstock.sql.statements.models import model_names, visible_options
from penstock.sql.tables.vectors import VectorSearchFunction
from penstock.table.expression import Expression
from penstock.table.plans import Plans
from penstock.table.table import Table

__all__ = ["Model", "ModelDescriptor", "PredictFunction", "VectorSearchFunction"]


@dataclass(frozen=True)
class ModelDescriptor:
    """A model that a program defines, instead of CREATE MODEL. Created by `for_provider`.

    Examples:
        >>> from penstock.table import ModelDescriptor, Schema
        >>> text = Schema.new_builder().column("text", "STRING").build()
        >>> label = Schema.new_builder().column("label", "STRING").build()
        >>> model = ModelDescriptor.for_provider("python").option("class", "shop.Labels").input_schema(text)
        >>> model.output_schema(label).build().get_options()
        {'provider': 'python', 'class': 'shop.Labels'}
    """

    options: dict[str, str]
    input: Schema | None = None
    output: Schema | None = None
    comment: str | None = None
    source: Any = field(default=None, compare=False)

    @staticmethod
    def for_provider(provider: Any) -> ModelDescriptor.Builder:
        """Return a builder for a model of a provider such as `openai`.

        `provider` may also be a class or an object with a method `predict`, such as a `PredictFunction`, a function
        from a list of rows to a list of results, or a `ModelProvider`.
        """
        if isinstance(provider, str):
            return ModelDescriptor.Builder().option("provider", provider)
        if not callable(provider) and not any(hasattr(provider, name) for name in ("predict", "async_predictor")):
            raise WrongTypeError(f"a provider is a name, or an object with a method predict(rows), not {provider!r}")
        return ModelDescriptor.Builder(provider).option("provider", "python")

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self.options)

    def get_input_schema(self) -> Schema | None:
        """Return the columns that the model takes, if they are declared."""
        return self.input

    def get_output_schema(self) -> Schema | None:
        """Return the columns of a prediction, if they are declared."""
        return self.output

    def get_comment(self) -> str | None:
        """Return the comment, if there is one."""
        return self.comment

    def to_catalog_model(self) -> CatalogModel:
        """Convert the descriptor to the form that catalogs store."""
        if (self.input is None) != (self.output is None):
            raise ValidationError("a model has both an input schema and an output schema, or neither")
        return CatalogModel(
            self.input or Schema(), self.output or Schema(), dict(self.options), self.comment, self.source
        )

    def __str__(self) -> str:
        options = ",\n".join(f"  '{key}' = '{value}'" for key, value in visible_options(self.options).items())
        return f"{self.input}\n{self.output}\nCOMMENT '{self.comment or ''}'\nWITH (\n{options}\n)"

    class Builder:
        """Builds a `ModelDescriptor`. All methods except `build` return the builder itself."""

        def __init__(self, source: Any = None) -> None:
            self._options: dict[str, str] = {}
            self._input: Schema | None = None
            self._output: Schema | None = None
            self._comment: str | None = None
            self._source = source

        def input_schema(self, input_schema: Schema) -> ModelDescriptor.Builder:
            """Set the columns that the model takes."""
            self._input = input_schema
            return self

        def output_schema(self, output_schema: Schema) -> ModelDescriptor.Builder:
            """Set the columns of a prediction."""
            self._output = output_schema
            return self

        def option(self, key: str | ConfigOption[Any], value: Any) -> ModelDescriptor.Builder:
            """Set an option of the provider."""
            self._options[key.key() if isinstance(key, ConfigOption) else key] = render(value)
            return self

        def comment(self, comment: str) -> ModelDescriptor.Builder:
            """Set the comment."""
            self._comment = comment
            return self

        def build(self) -> ModelDescriptor:
            """Build the model."""
            return ModelDescriptor(dict(self._options), self._input, self._output, self._comment, self._source)


class Model:
    """A model that predicts for the rows of tables. `TableEnvironment.from_model` returns it.

    Examples:
        >>> from penstock.table import EnvironmentSettings, ModelDescriptor, Schema, TableEnvironment
        >>> from penstock.table.expressions import descriptor
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> number = Schema.new_builder().column("n", "BIGINT").build()
        >>> doubled = Schema.new_builder().column("doubled", "BIGINT").build()
        >>> twice = ModelDescriptor.for_provider(lambda rows: [row.n * 2 for row in rows])
        >>> model = t_env.from_model(twice.input_schema(number).output_schema(doubled).build())
        >>> cups = t_env.from_elements([("tea", 2)], ["drink", "cups"])
        >>> list(model.predict(cups, descriptor("cups")).execute().collect())
        [<Row('tea', 2, 4)>]
    """

    def __init__(self, model: PlanModel, environment: ModelMethods) -> None:
        self._model = model
        self._environment = environment

    def get_resolved_input_schema(self) -> ResolvedSchema:
        """Return the columns that the model takes."""
        return ResolvedSchema.physical(self._model.inputs.names, self._model.inputs.types)

    def get_resolved_output_schema(self) -> ResolvedSchema:
        """Return the columns of a prediction."""
        return ResolvedSchema.physical(self._model.outputs.names, self._model.outputs.types)

    def predict(self, table: Table, input_columns: Any, options: Mapping[str, str] | None = None) -> Table:
        """Return the rows of a table with the predictions for them.

        Args:
            table: the table.
            input_columns: the columns of the table that the model takes: `descriptor("a", "b")`, or a list of names.
            options: how the model is called, as in ML_PREDICT: `async`, `max-concurrent-operations`, `timeout` and
                `output-mode`.

        Raises:
            ValidationError: if the columns do not fit the input of the model, or an option has a wrong value.
        """
        if not isinstance(table, Table):
            raise WrongTypeError(f"predict takes a table first, not {table!r}")
        config = {key: str(value) for key, value in (options or {}).items()}
        check_config(config)
        analyser = self._environment._session.manager.analyser()
        return self._environment._table(
            predicted(table._plan, self._model, _column_names(input_columns), config, analyser)
        )

    def as_argument(self, name: str) -> Expression:
        """Pass the model as the function's argument with this name."""
        return Expression(syntax.NamedArgument(name, PlannedModel(self._model)))


def _column_names(columns: Any) -> Sequence[str]:
    if isinstance(columns, str):
        return (columns,)
    if not isinstance(columns, Expression):
        return tuple(columns)
    if not isinstance(columns._node, syntax.DescriptorArgument):
        raise ValidationError("the columns of the model's input are given as descriptor('a', 'b')")
    return [path[0] for path in columns._node.columns]


def _operand(argument: Any) -> syntax.Expression:
    if isinstance(argument, Table):
        return syntax.TableArgument(PlannedQuery(argument._plan))
    return PlannedModel(argument._model) if isinstance(argument, Model) else to_node(argument)


class ModelMethods:
    """The methods of `TableEnvironment` that list, create, drop and use models. Paths are written as in SQL."""

    _session: TableSession

    def _table(self, plan: Node, declared: ResolvedSchema | None = None) -> Table:
        raise NotImplementedError

    def create_model(self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool = False) -> None:
        """Create a model in a catalog.

        Raises:
            ValidationError: if it exists, unless `ignore_if_exists` is set.
        """
        model = model_descriptor.to_catalog_model()
        self._session.manager.create_model(parse_path(model_path), model, False, bool(ignore_if_exists))

    def create_temporary_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool = False
    ) -> None:
        """Create a temporary model, which hides others with its path and ends with the program.

        Raises:
            ValidationError: if a temporary model has this path, unless `ignore_if_exists` is set.
        """
        model = model_descriptor.to_catalog_model()
        self._session.manager.create_model(parse_path(model_path), model, True, bool(ignore_if_exists))

    def drop_model(self, model_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drop a model from its catalog. Returns whether it existed."""
        return self._session.manager.drop_model(parse_path(model_path), False, bool(ignore_if_not_exists))

    def drop_temporary_model(self, model_path: str) -> bool:
        """Drop a temporary model. Returns whether it existed."""
        return self._session.manager.drop_model(parse_path(model_path), True, True)

    def list_models(self) -> list[str]:
        """Return the names of all models in the current database, including temporary ones."""
        manager = self._session.manager
        return model_names(self._session, manager.catalog(manager.current_catalog), manager.current_database)

    def list_temporary_models(self) -> list[str]:
        """Return the names of the temporary models in the current database."""
        return self._session.manager.list_temporary_models()

    def from_model(self, model_path_or_descriptor: str | ModelDescriptor) -> Model:
        """Return a model by its path, or an unnamed model that a descriptor describes.

        Raises:
            ValidationError: if it does not exist, or its options are not those of a provider.
        """
        manager = self._session.manager
        if isinstance(model_path_or_descriptor, ModelDescriptor):
            catalog_model = model_path_or_descriptor.to_catalog_model()
            path = self._session.anonymous_path(catalog_model.options.get("provider", "model"))
            manager.create_model(path, catalog_model, True)
            return Model(manager.planned_model(path, catalog_model), self)
        model = manager.model(parse_path(model_path_or_descriptor))
        if model is None:
            full_path = ".".join(manager.qualified(parse_path(model_path_or_descriptor)))
            raise ValidationError(f"Model {full_path} was not found.")
        return Model(model, self)

    def from_call(self, function: Any, *arguments: Any) -> Table:
        """Return the rows of a function that takes tables: a built-in one such as ML_PREDICT, or a process table
        function.

        Args:
            function: the name of a built-in or registered function, a class, or what `udptf` made.
            arguments: tables, models, expressions and values, each perhaps with a name by `as_argument`.

        Raises:
            ValidationError: if the function does not exist, or an argument does not fit.

        Examples:
            >>> from penstock.table.udf import ProcessTableFunction
            >>> class Numbers(ProcessTableFunction[int]):
            ...     def eval(self, end: int):
            ...         yield from range(end)
            >>> list(t_env.from_call(Numbers, 2).execute().collect())
            [<Row(0)>, <Row(1)>]
            >>> from penstock.table import ModelDescriptor, Schema
            >>> from penstock.table.expressions import descriptor
            >>> number = Schema.new_builder().column("n", "BIGINT").build()
            >>> square = ModelDescriptor.for_provider(lambda rows: [row.n * row.n for row in rows])
            >>> model = square.input_schema(number).output_schema(number).build()
            >>> cups = t_env.from_elements([(2,), (3,)], ["cups"])
            >>> squares = t_env.from_call("ML_PREDICT", cups, t_env.from_model(model), descriptor("cups"))
            >>> list(squares.execute().collect())
            [<Row(2, 4)>, <Row(3, 9)>]
        """
        manager = self._session.manager
        names = parse_path(function) if isinstance(function, str) else ()
        if not names or names[-1].upper() not in TABLE_FUNCTIONS:
            return self._table(Plans(manager).process(function, arguments))
        operands = tuple(_operand(argument) for argument in arguments)
        relation = syntax.FunctionTable(syntax.Call(names[-1].upper(), operands, names))
        return self._table(manager.analyser().relations.scope(relation, None).plan)

    def register_model_provider(self, name: str, factory: ProviderFactory) -> None:
        """Register a provider for the option `provider` of models: a function from a `ModelContext` to a
        `ModelProvider`.
        """
        self._session.manager.model_providers.register(name, factory)
