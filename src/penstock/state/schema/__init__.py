"""The types that a snapshot records for its states, and the conversion of state from one type to another (H4).

`nodes` converts declared types to JSON, `declared` describes a whole state, `evolution` decides whether and how one
type can become another, and `migration` applies this to the entries of a restored state.
"""
