"""The kinds of changes in a changelog."""

from penstock.table.records.changelog_mode import ChangelogMode

__all__ = ["ChangelogMode"]
