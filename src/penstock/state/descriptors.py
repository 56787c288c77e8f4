"""Names and types of keyed state, as declared by user code (PyFlink's state descriptors)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.state.ttl_config import StateTtlConfig


class StateDescriptor:
    """The name of an operator's state in a snapshot, and the declared type of its values.

    Attributes:
        kind: value, list, map, reducing or aggregating.
        ttl_config: when entries expire; None if they never do.
    """

    kind = "value"
    ttl_config: StateTtlConfig | None = None

    def __init__(self, name: str, type_info: TypeInformation | None = None) -> None:
        if not name or not isinstance(name, str):
            raise WrongValueError(f"a state needs a name, not {name!r}")
        if name.startswith("_penstock"):
            raise WrongValueError(
                f"state name {name!r}: names that begin with '_penstock' are reserved for the runtime"
            )
        self.name = name
        self.type_info = type_info

    def get_name(self) -> str:
        """Return the state's name."""
        return self.name

    def get_type_info(self) -> TypeInformation | None:
        """Return the declared type, or None if values are pickled."""
        return self.type_info

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries expire as `ttl_config` says; call it before the state is requested.

        Raises:
            TypeError: if it is not a `StateTtlConfig`.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise WrongTypeError(f"expected a StateTtlConfig, not {ttl_config!r}")
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ValueStateDescriptor(StateDescriptor):
    """One value for each key."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """A list for each key."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """A map for each key."""

    kind = "map"

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = key_type_info


class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, into which a reduce function folds added values."""

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation | None = None) -> None:
        super().__init__(name, type_info)
        self.reduce_function: Callable[[Any, Any], Any] = getattr(reduce_function, "reduce", reduce_function)
        self._declared_function = reduce_function

    def get_reduce_function(self) -> Any:
        """Return the function that folds, as declared: a `ReduceFunction` or a plain callable."""
        return self._declared_function


class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator for each key, to which an aggregate function adds values."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the function that aggregates."""
        return self.agg_function
