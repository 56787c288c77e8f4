"""Plans FROM_CHANGELOG and TO_CHANGELOG: the changes that they emit and require."""

from __future__ import annotations

from functools import partial

from penstock.table.plan.changes import ALL, INSERTS, NAMES, Changes
from penstock.table.plan.logical import FromChangelog, ToChangelog
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, name_columns
from penstock.table.streaming.rows.changelog_operators import FromChangelogOperator, ToChangelogOperator
from penstock.table.streaming.rows.normalize_operator import ChangelogNormalizeOperator
from penstock.table.streaming.rows.state_times import lasting


class ToChangelogRule(Rule[ToChangelog]):
    """Converts all changes to append-only rows."""

    nodes = (ToChangelog,)

    def changes(self, node: ToChangelog, planning: Planning) -> Changes:
        """See `Rule`."""
        planning.changes(node.input)
        return INSERTS

    def asks_before(self, node: ToChangelog, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE if the mapping has a code for it."""
        return planning.updates(node.input) and "UPDATE_BEFORE" in dict(node.codes)

    def stream(self, node: ToChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        other_columns = [index for index in range(len(node.input.schema)) if index not in node.partition]
        columns = (*node.partition, *other_columns)
        named = dict(node.codes)
        # A -U that arrives although the mapping has no code for it may be the last change of its row: a deletion.
        if "DELETE" in named:
            named.setdefault("UPDATE_BEFORE", named["DELETE"])
        codes = {NAMES.index(change): code for change, code in named.items()}
        operator = partial(ToChangelogOperator, columns, len(node.partition), codes, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        return Stream(planning.step("To Changelog", operator, inputs, True), node.schema, INSERTS, False)


class FromChangelogRule(Rule[FromChangelog]):
    """Converts append-only rows to changes."""

    nodes = (FromChangelog,)

    def changes(self, node: FromChangelog, planning: Planning) -> Changes:
        """Return all changes: like Flink, the planner does not read the codes."""
        planning.accept("FROM_CHANGELOG", node.input, INSERTS)
        return ALL

    def asks_before(self, node: FromChangelog, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the input is append-only."""
        return False

    def stream(self, node: FromChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        changes = planning.changes(node)
        inner = planning.stream(node.input, False)
        codes = {code: NAMES.index(change) for code, change in node.codes}
        operator = partial(FromChangelogOperator, node.operation, codes, node.columns, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        stream = Stream(
            planning.step("From Changelog", operator, inputs, True), node.schema, changes, not node.is_upsert
        )
        if stream.has_before or not wants_before:
            return stream
        key = range(len(node.partition))
        normalize = partial(ChangelogNormalizeOperator, key, node.schema.types, name_columns(node.schema), True)
        factory = lasting(normalize, planning.options.state_ttl_ms)
        upstreams = planning.step("Changelog Normalize", factory, by_columns(stream, key), is_stateful=True)
        return Stream(upstreams, node.schema, changes, True)
