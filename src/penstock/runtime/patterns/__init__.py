"""Pattern matching on events as they arrive: no IO, no clock, and the same matches for the same events.

`penstock.cep` and SQL's MATCH_RECOGNIZE are two front ends of this engine.

- A pattern (`pattern`) is a value: stages, each with a condition, how often it takes an event, and which events
  may lie between it and the previous stage.
- It is compiled into an automaton (`automaton`): states, with steps that take an event, ignore it, or proceed
  without one. It has Flink's states and steps. A stage that must not match is a step to a stop from the states
  where its neighbours wait; at the end of a pattern it is a pending state, which is a match when its time runs
  out.
- Each state has a decision tree, which grows with the answers, for the order of its conditions. A simple
  condition is evaluated once for an event, an iterative one for each partial match.
- The trees become tables (`moves`): the answers of an event's simple conditions are its symbol, and for each symbol
  there is a row with the move of each state.
- The matcher (`matcher`) runs the events of each key through the automaton. All it keeps between events is a
  list of plain values, its memory (`memory`), which is keyed state. If several steps are possible, there are
  several partial matches.
- The memory contains each event once, however many partial matches include it. A partial match knows only its
  last link; a link knows its event, its stage and the previous link. Flink's buffer has one node for an event
  in a stage, shared by paths, and needs version numbers to distinguish their edges. Here a link has one
  previous link, so the links form a tree, a path leads from a link to the root, and no version numbers are
  needed. Links and events are reference-counted, and removed with the last reference. An event that no partial
  match takes changes nothing, so nothing is written for it.
- Skip strategies say which partial matches a match discards, and emit matches in the order of their beginnings.

See Flink's documents "FlinkCEP" and "Pattern Recognition".
"""
