"""The bugs that can be planted in a module: one node of its syntax tree replaced by a plausible slip.

    comparisons  <  for <=,  == for !=,  in for not in     numbers     one more, 0 for 1
    conditions   and for or,  not left out,  negated       arguments   True for False,  min for max
    statements   a call, a break or an addition left out   sums        - for +

What only tells people something is left alone: messages of errors, docstrings, annotations, `__repr__`, logging.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SUMS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
}
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "bisect_left": "bisect_right"}
#: functions whose text is for people
_TOLD: Final = frozenset({"__repr__", "__str__", "about", "describe", "__init_subclass__"})
_LOGGERS: Final = frozenset({"debug", "info", "warning", "error", "exception", "log"})


@dataclass(frozen=True)
class Mutation:
    """A bug: where it is, what it replaces and by what; `begin` and `end` are places in the text."""

    line: int
    begin: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        """The module with the bug."""
        return text[: self.begin] + self.after + text[self.end :]

    def __str__(self) -> str:
        return f"line {self.line}: {_short(self.before)}  ->  {_short(self.after)}"


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= 100 else one[:97] + "..."


def mutations_of(text: str) -> list[Mutation]:
    """All bugs that can be planted in a module, in the order of the text."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    return sorted(finder.found, key=lambda one: (one.begin, one.end, one.after))


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self.found: list[Mutation] = []
        self._text = text
        self._begins = [0]
        for line in text.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    # --- what is left alone ---

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None: ...

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in _TOLD:
            for statement in node.body:
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    # --- bugs ---

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            other = _COMPARISONS.get(type(operator))
            if other is not None:
                operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self._replace(node, ast.Compare(node.left, operators, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, ast.BoolOp(other, node.values))
        for value in node.values:
            rest = [one for one in node.values if one is not value]
            self._replace(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _SUMS.get(type(node.op))
        if other is not None and not any(_is_text(one) for one in (node.left, node.right)):
            self._replace(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, ast.Constant(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, ast.Constant(1 - node.value if node.value in (0, 1) else node.value + 1))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = _SUMS.get(type(node.op))
        if other is not None and not _is_text(node.value):
            self._replace(node, ast.AugAssign(node.target, other(), node.value))
        self._replace(node, ast.Pass())
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, ast.Pass())

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, ast.Pass())

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, ast.Pass())

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if _is_log(node.value):
                return
            self._replace(node, ast.Pass())
        elif isinstance(node.value, ast.Constant):
            return  # a docstring
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            self._replace(node.func, ast.Name(_NAMES[node.func.id]))
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare) or len(test.ops) > 1:
            self._replace(test, ast.UnaryOp(ast.Not(), test))

    def _replace(self, node: Any, other: ast.AST) -> None:
        begin = self._place(node.lineno, node.col_offset)
        end = self._place(node.end_lineno, node.end_col_offset)
        before, after = self._text[begin:end], ast.unparse(other)
        if isinstance(other, ast.expr):
            after = f"({after})"
        self.found.append(Mutation(node.lineno, begin, end, before, after))

    def _place(self, line: int, column: int) -> int:
        begin = self._begins[line - 1]
        text = self._text[begin : self._begins[line]]
        return begin + len(text.encode()[:column].decode())


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_log(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGERS


def walk(texts: dict[str, str]) -> Iterator[tuple[str, Mutation]]:
    """The bugs of several modules, each with its module's path."""
    for path, text in sorted(texts.items()):
        for mutation in mutations_of(text):
            yield path, mutation
