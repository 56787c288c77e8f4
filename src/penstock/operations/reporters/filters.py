"""The metrics that a reporter accepts, according to Flink's `filter.includes` and `filter.excludes`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ConfigurationError
from penstock.operations.metrics.kinds import COUNTER, GAUGE, HISTOGRAM, METER, classify_metric
from penstock.operations.metrics.scopes import Scoped, Value

_KINDS: Final = (COUNTER, GAUGE, HISTOGRAM, METER)


@dataclass(frozen=True)
class _Rule:
    scope: re.Pattern[str]
    names: tuple[re.Pattern[str], ...]
    kinds: frozenset[str]

    def matches(self, scope: str, name: str, kind: str) -> bool:
        is_named = any(pattern.fullmatch(name) for pattern in self.names)
        return kind in self.kinds and is_named and self.scope.fullmatch(scope) is not None


class MetricFilter:
    """Accepts metrics that match an include and no exclude.

    A rule is `<scope>[:<name>,<name>[:<type>,<type>]]`, with `*` as the wildcard, such as
    `*.job.task.operator:numRecords*:counter,meter`. The scope is Flink's logical one, plus everything before the last
    dot of a metric's name: `taskmanager.Status.JVM.CPU`. Semicolons separate rules.

    Args:
        includes: the include rules; without any, all metrics are included.
        excludes: the exclude rules.
        key: the option, for errors.

    Raises:
        ConfigurationError: naming the option, if a type is invalid.
    """

    def __init__(self, includes: str | None, excludes: str | None, key: str = "filter") -> None:
        self._includes = _rules(includes or "*", f"{key}.includes")
        self._excludes = _rules(excludes or "", f"{key}.excludes")
        self._known: dict[tuple[str, str, str], bool] = {}

    def takes(self, scoped: Scoped, name: str, value: Value) -> bool:
        """Return whether the filter accepts a metric of a scope."""
        key = scoped.scope.value, name, classify_metric(scoped, name, value)
        known = self._known.get(key)
        if known is None:
            infix, _, last = name.rpartition(".")
            arguments = (f"{key[0]}.{infix}" if infix else key[0], last, key[2])
            included = any(rule.matches(*arguments) for rule in self._includes)
            known = self._known[key] = included and not any(rule.matches(*arguments) for rule in self._excludes)
        return known


def _rules(text: str, key: str) -> list[_Rule]:
    rules = []
    for rule in filter(None, map(str.strip, text.split(";"))):
        scope, names, kinds, *rest = [*(part.strip() for part in rule.split(":")), "", ""][: rule.count(":") + 3]
        selected_kinds = (
            frozenset(kind.strip() for kind in kinds.split(",")) if kinds not in ("", "*") else frozenset(_KINDS)
        )
        if any(rest) or not selected_kinds <= frozenset(_KINDS):
            raise ConfigurationError(
                f"{key}: {rule!r} is no rule: write <scope>[:<names>[:<types>]], and of types {', '.join(_KINDS)}"
            )
        rules.append(
            _Rule(_pattern(scope), tuple(_pattern(name.strip()) for name in (names or "*").split(",")), selected_kinds)
        )
    return rules


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"))
