"""What the answers to the examples of patterns share."""


def keyed(records, field):
    """The records of each key, in their order."""
    found: dict = {}
    for record in records:
        found.setdefault(getattr(record, field), []).append(record)
    return found
