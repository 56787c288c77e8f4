"""What becomes of partial matches when the program's pattern is not the one that they were stored for.

The description of a pattern is operator state, the same in every subtask. Where it differs from that of the pattern at
hand, the job fails and says how; unless the program allows it: then partial matches whose past is the same live on, and
the others are dropped. All keys are gone through once, when the operator opens.
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
#: The counter of partial matches that were dropped.
DROPPED: Final = "numPartialMatchesDropped"


class ChangedPatternError(OperationError):
    """State was stored for another pattern. Another attempt would meet the same, so the job fails at once."""

    suppresses_restart = True


def note_pattern(context: OperatorContext, description: Description, is_allowed: bool) -> list[Description]:
    """Keep the description of a pattern as state, and return those that state was stored for, where they differ.

    Raises:
        ChangedPatternError: if there are such and that is not allowed.
    """
    state = context.operator_state.list_state(PATTERN, UNION_MODE)
    others = []
    for held in dict.fromkeys(state.get()):
        before = Description.of_state(held)
        if before == description:
            continue
        others.append(before)
        changes = differences(before, description)
        if changes and not is_allowed:
            raise ChangedPatternError(
                f"{context.operator_name}: the state that the job begins from belongs to another pattern: "
                f"{'; '.join(changes)}. Use the pattern as it was, give the operator another uid so that it begins "
                "without partial matches, or set pipeline.cep.allow-changed-pattern to keep those whose stages so far "
                "are the same"
            )
    state.update([description.to_state()])
    return others


def carry_over(
    table: KeyedTable,
    events: Elsewhere,
    before: Description,
    now: Description,
    matcher: Matcher,
    context: OperatorContext,
    register: Callable[[int, Any], None],
) -> None:
    """Lead the partial matches of all keys over to the pattern of `matcher`.

    Args:
        table: what matchers remember.
        events: the events of the current key.
        before: the pattern that they were stored for.
        now: the pattern at hand.
        matcher: of that pattern.
        context: of the operator.
        register: lets a key be looked at again at a time.
    """
    kept = states_kept(before, now)
    memories, keyed = table.entries(None), context.keyed
    for key, held in list(memories.items()):
        keyed.current_key = key
        memory = Memory(held, events)
        partials = [one._replace(state=kept[one.state]) for one in memory.partials if one.state in kept]
        dropped = [one for one in memory.partials if one.state not in kept]
        memory.keep_partials(partials)
        for one in dropped:
            memory.release(one.link)
        if dropped:
            context.count(DROPPED, len(dropped))
        if memory.is_empty:
            del memories[key]
        else:
            memories[key] = held
            deadline = matcher.deadline_ms(memory)
            if deadline is not None:
                register(deadline, key)
            if dropped and memory.waiting:
                register(MIN_TIMESTAMP, key)  # they may have waited for what was dropped
        table.changed(None).add(key)
        if table.settle is not None:
            table.settle()
    keyed.current_key = NO_KEY
