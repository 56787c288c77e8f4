"""What a snapshot says of the types of its states, and how state of one type becomes state of another (H4).

`nodes` turns declared types into JSON, `declared` describes a whole state, `evolution` decides whether one type can
become another and how, and `migration` applies that to the entries of a restored state.
"""
