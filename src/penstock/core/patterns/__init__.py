"""Pattern matching on events as they arrive: no IO, no clock, and the same matches for the same events.

- A [pattern](pattern.py) is a value: stages, each with a condition, how often it takes an event, and which events may
  lie between it and the previous stage.
- It is compiled into an [automaton](automaton.py): states, with steps that take an event, ignore it, or proceed
  without one.
- The [matcher](matcher.py) runs the events of one key through the automaton. All it keeps between events is a list of
  plain values, its memory, which is keyed state. If several steps are possible, there are several partial matches.
- The [memory](memory.py) contains each event once, however many partial matches include it. A partial match knows only
  its last link; a link knows its event, its stage and the previous link. Flink's buffer has one node for an event in a
  stage, shared by paths, and needs version numbers to tell their edges apart. Here a link has one previous link, so
  the links form a tree, a path leads from a link to the root, and no version numbers are needed. Links and events
  are reference-counted, and removed with the last reference.
- [Skip strategies](skipping.py) say which partial matches a match discards, and emit matches in the order in which
  they began.

See Flink's documents "FlinkCEP" and "Pattern Recognition".
"""
