"""Handles partial matches that were stored for another pattern than the program's current one.

The description of a pattern is operator state, the same in every subtask. If it differs from the current pattern's
description, the job fails and lists the changes, unless the program allows them. Then partial matches with the same
past continue, and the others are dropped. All keys are visited once, when the operator opens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import OperationError
from penstock.core.operators.context import OperatorContext
from penstock.core.patterns.description import Description, differences, states_kept
from penstock.core.patterns.matcher import Matcher
from penstock.core.patterns.memory import Elsewhere, Memory
from penstock.core.records import MIN_TIMESTAMP
from penstock.state.backend import KeyedTable
from penstock.state.operator_state import UNION_MODE
from penstock.state.states import NO_KEY

PATTERN: Final = "cep_pattern"
#: The counter of dropped partial matches.
DROPPED: Final = "numPartialMatchesDropped"


class ChangedPatternError(OperationError):
    """State was stored for another pattern. Another attempt would fail in the same way, so the job fails at once."""

    suppresses_restart = True


def note_pattern(context: OperatorContext, description: Description, is_allowed: bool) -> list[Description]:
    """Store the description of a pattern as state, and return the restored descriptions that differ from it.

    Raises:
        ChangedPatternError: if the pattern has changed and that is not allowed.
    """
    state = context.operator_state.list_state(PATTERN, UNION_MODE)
    previous = []
    for stored in dict.fromkeys(state.get()):
        before = Description.of_state(stored)
        if before == description:
            continue
        previous.append(before)
        changes = differences(before, description)
        if changes and not is_allowed:
            raise ChangedPatternError(
                f"{context.operator_name}: the state that the job begins from belongs to another pattern: "
                f"{'; '.join(changes)}. Use the pattern as it was, give the operator another uid so that it begins "
                "without partial matches, or set pipeline.cep.allow-changed-pattern to keep those whose stages so far "
                "are the same"
            )
    state.update([description.to_state()])
    return previous


def carry_over(
    table: KeyedTable,
    events: Elsewhere,
    before: Description,
    now: Description,
    matcher: Matcher,
    context: OperatorContext,
    register: Callable[[int, Any], None],
) -> None:
    """Convert the partial matches of all keys to the pattern of `matcher`.

    Args:
        table: the matchers' memory of each key.
        events: the events of the current key.
        before: the pattern that they were stored for.
        now: the current pattern.
        matcher: the matcher of the current pattern.
        context: the context of the operator.
        register: schedules a key to be examined at a time.
    """
    state_mapping = states_kept(before, now)
    memories, keyed = table.entries(None), context.keyed
    for key, data in list(memories.items()):
        keyed.current_key = key
        memory = Memory(data, events)
        partials = [
            partial._replace(state=state_mapping[partial.state])
            for partial in memory.partials
            if partial.state in state_mapping
        ]
        dropped = [partial for partial in memory.partials if partial.state not in state_mapping]
        memory.keep_partials(partials)
        for dropped_partial in dropped:
            memory.release(dropped_partial.link)
        if dropped:
            context.count(DROPPED, len(dropped))
        if memory.is_empty:
            del memories[key]
        else:
            memories[key] = data
            deadline = matcher.deadline_ms(memory)
            if deadline is not None:
                register(deadline, key)
            if dropped and memory.waiting:
                register(MIN_TIMESTAMP, key)  # they may have waited for a dropped match
        table.changed(None).add(key)
        if table.settle is not None:
            table.settle()
    keyed.current_key = NO_KEY
