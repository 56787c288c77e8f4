"""Which kinds of changes a changelog has."""

from penstock.table.records.changelog_mode import ChangelogMode

__all__ = ["ChangelogMode"]
