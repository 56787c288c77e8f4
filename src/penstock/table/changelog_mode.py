"""The kinds of changes in a changelog."""

from penstock.sql.logical.records import ChangelogMode

__all__ = ["ChangelogMode"]
