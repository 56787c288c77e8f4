"""Patterns of events, found while the events come: no IO, no clock, and the same matches for the same events.

- A [pattern](pattern.py) is a value: stages, each with a condition, how often it takes an event, and which events may
  lie between it and the stage before.
- It becomes an [automaton](automaton.py): states, with steps that take an event, pass it over, or go on without one.
- The [matcher](matcher.py) leads the events of one key through it. All that it keeps between events is a list of plain
  values, its memory, which is keyed state. Several ways to go make several partial matches.
- Each event is in the [memory](memory.py) once, however many partial matches have it. A partial match knows its last
  link only; a link knows its event, its stage and the link before. Flink's buffer has one node for an event in a stage,
  which paths share, and needs version numbers to tell whose edges these are. Here a link has one link before it, so
  the links are a tree, a path is what lies between a link and the root, and there is nothing to tell apart. Links and
  events count who refers to them, and go with the last one.
- [Skip strategies](skipping.py) say which partial matches die with a match, and let matches out in the order in which
  they began.

See Flink's documents "FlinkCEP" and "Pattern Recognition".
"""
