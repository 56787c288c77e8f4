"""Parses ALTER statements: tables with their many actions, views, and objects with options."""

from __future__ import annotations

from penstock.table.sql import statements
from penstock.table.sql.statements import AlterAction, Column, Options, Path, Statement
from penstock.table.sql.table_parser import TableParser


class AlterParser(TableParser):
    """See the module docstring."""

    def alter_table(self, at: int, is_materialized: bool) -> Statement:
        """Parse the rest of an ALTER TABLE statement."""
        if_exists = not is_materialized and self.if_exists()
        path = self.path()
        actions = self._actions(is_materialized)
        return statements.AlterTable(path, tuple(actions), if_exists, is_materialized, at=at)

    def _actions(self, is_materialized: bool) -> list[AlterAction]:
        if not is_materialized and self.accept("RENAME"):
            return [self._rename()]
        if is_materialized and self.accept("SET", "FRESHNESS", "="):
            return [AlterAction("SET FRESHNESS", freshness=self.freshness())]
        if is_materialized and self.accept("SET", "REFRESH_MODE", "="):
            return [AlterAction("SET REFRESH_MODE", refresh_mode=self.refresh_mode())]
        if self.accept("SET"):
            return [AlterAction("SET", options=self.options())]
        if self.accept("RESET"):
            return [AlterAction("RESET", names=tuple((key,) for key in self.keys()))]
        verb = self.accept_any("ADD", "MODIFY", "DROP")
        if verb == "DROP":
            return self._drops(is_materialized)
        if is_materialized and self.sees("PARTITION"):
            self.fail("a materialized table takes no partitions")
        if verb is not None:
            return self._additions(verb)
        if is_materialized:
            return [self._materialized()]
        self.fail("expected RENAME, SET, RESET, ADD, MODIFY or DROP")

    def _rename(self) -> AlterAction:
        if self.accept("TO"):
            return AlterAction("RENAME TO", names=(self.path(),))
        old = self.path()
        self.expect("TO")
        return AlterAction("RENAME COLUMN", names=(old, self.path()))

    def keys(self) -> tuple[str, ...]:
        """Parse a possibly empty list of option keys in parentheses."""
        self.expect("(")
        keys = () if self.sees(")") else tuple(self.parse_items(self.text))
        self.expect(")")
        return keys

    def _additions(self, verb: str) -> list[AlterAction]:
        if verb == "ADD" and (self.sees("PARTITION") or self.sees("IF", "NOT", "EXISTS")):
            if_not_exists = self.if_not_exists()
            actions = []
            while self.accept("PARTITION"):
                values = self.partition_values()
                options: Options = self.options() if self.accept("WITH") else ()
                actions.append(AlterAction("ADD PARTITION", partition=values, options=options, if_exists=if_not_exists))
            return actions
        if not self.accept("("):
            return [self._addition(verb)]
        actions = self.parse_items(lambda: self._addition(verb))
        self.expect(")")
        return actions

    def _addition(self, verb: str) -> AlterAction:
        if self.sees("WATERMARK", "FOR"):
            return AlterAction(f"{verb} WATERMARK", watermark=self.watermark())
        if self.sees_any("CONSTRAINT", "PRIMARY", "UNIQUE"):
            return AlterAction(f"{verb} CONSTRAINT", constraint=self.constraint())
        if self.accept("DISTRIBUTION"):
            return AlterAction(f"{verb} DISTRIBUTION", distribution=self.distribution())
        column, position = self._placed_column()
        return AlterAction(f"{verb} COLUMN", column=column, position=position)

    def _placed_column(self) -> tuple[Column, str | None]:
        column = self.column()
        return column, self._place_of_column()

    def _place_of_column(self) -> str | None:
        if self.accept("FIRST"):
            return "FIRST"
        return f"AFTER {'.'.join(self.path())}" if self.accept("AFTER") else None

    def _drops(self, is_materialized: bool) -> list[AlterAction]:
        if not is_materialized and (self.sees("PARTITION") or self.sees("IF", "EXISTS")):
            return self._dropped_partitions(self.if_exists())
        if self.accept("CONSTRAINT"):
            return [AlterAction("DROP CONSTRAINT", names=((self.name(),),))]
        if self.accept("PRIMARY", "KEY"):
            return [AlterAction("DROP PRIMARY KEY")]
        for word in ("WATERMARK", "DISTRIBUTION"):
            if self.accept(word):
                return [AlterAction(f"DROP {word}")]
        names = tuple(self.in_parentheses(lambda: self.parse_items(self.path))) if self.sees("(") else (self.path(),)
        return [AlterAction("DROP COLUMN", names=names)]

    def _dropped_partitions(self, if_exists: bool) -> list[AlterAction]:
        self.expect("PARTITION")
        actions = [AlterAction("DROP PARTITION", partition=self.partition_values(), if_exists=if_exists)]
        while self.accept(",", "PARTITION"):
            actions.append(AlterAction("DROP PARTITION", partition=self.partition_values(), if_exists=if_exists))
        return actions

    def _materialized(self) -> AlterAction:
        """Parse an action that only materialized tables have."""
        if self.accept("AS"):
            return AlterAction("AS", query=self.query())
        if self.accept("REFRESH"):
            return AlterAction("REFRESH", partition=self.partition_values() if self.accept("PARTITION") else ())
        if self.accept("RESUME"):
            return AlterAction("RESUME", options=self.options() if self.accept("WITH") else ())
        self.expect("SUSPEND")
        return AlterAction("SUSPEND")

    # --- what is not a table -----------------------------------------------------------------------------------------

    def alter_view(self, at: int) -> Statement:
        """Parse the rest of an ALTER VIEW statement."""
        path = self.path()
        if self.accept("RENAME"):
            self.expect("TO")
            return statements.AlterView(path, self.path(), at=at)
        self.expect("AS")
        return statements.AlterView(path, (), self.query(), at=at)

    def alter_other(self, object_type: str, at: int) -> Statement:
        """Parse the rest of an ALTER CATALOG, DATABASE, MODEL or CONNECTION statement."""
        if_exists = object_type in ("MODEL", "CONNECTION") and self.if_exists()
        path: Path = (self.name(),) if object_type == "CATALOG" else self.path()
        if self.accept("SET"):
            return statements.Alter(object_type, path, "SET", self.options(), if_exists=if_exists, at=at)
        if object_type == "DATABASE":
            self.fail("expected SET")
        if self.accept("RESET"):
            return statements.Alter(object_type, path, "RESET", keys=self.keys(), if_exists=if_exists, at=at)
        if object_type == "CATALOG" and self.accept("COMMENT"):
            return statements.Alter(object_type, path, "COMMENT", text=self.text(), if_exists=if_exists, at=at)
        if object_type == "CATALOG":
            self.fail("expected SET, RESET or COMMENT")
        self.expect("RENAME", "TO")
        return statements.Alter(object_type, path, "RENAME TO", renamed=self.path(), if_exists=if_exists, at=at)
