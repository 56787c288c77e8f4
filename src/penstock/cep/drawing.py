"""Drawings of patterns: a Mermaid flowchart, and the same as SVG.

Stages are boxes from left to right. A NOT stage hangs below the stage before it on a dotted line. A group is a box
around its stages.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LETTER, _LINE, _GAP, _MARGIN, _PAD = 7, 18, 110, 12, 10


@dataclass(frozen=True)
class DrawnStage:
    """A stage as drawn.

    `said`: how often it takes an event, and its time limits. `arrow`: the label of the arrow to it. `is_not`: whether
    it is a NOT stage. `parts`: the stages of a group.
    """

    name: str
    said: tuple[str, ...]
    arrow: str
    is_not: bool = False
    parts: tuple[DrawnStage, ...] = ()


def render_mermaid(stages: Sequence[DrawnStage]) -> str:
    """Return the flowchart."""
    drawing = _Mermaid()
    drawing.row(stages, None, "    ")
    return "\n".join(["flowchart LR", *drawing.lines, *drawing.arrows]) + "\n"


class _Mermaid:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arrows: list[str] = []
        self._count = 0

    def row(self, stages: Sequence[DrawnStage], before: str | None, indent: str) -> tuple[str, str]:
        """Draw stages in a row after the stage `before`; return the ids of the first and the last one."""
        first = ""
        for stage in stages:
            begin, end = self._stage(stage, indent)
            if before is not None:
                line = ". " if stage.is_not else "- "
                self.arrows.append(f'    {before} -{line}"{_escaped(stage.arrow)}" {line[::-1].strip()}-> {begin}')
            first = first or begin
            if not stage.is_not:
                before = end
        assert before is not None
        return first, before

    def _stage(self, stage: DrawnStage, indent: str) -> tuple[str, str]:
        name = f"s{self._count}"
        self._count += 1
        if stage.parts:
            self.lines.append(f'{indent}subgraph {name}["{_escaped(", ".join(stage.said) or "group")}"]')
            ends = self.row(stage.parts, None, indent + "    ")
            self.lines.append(f"{indent}end")
            return ends
        text = "<br/>".join(map(_escaped, (stage.name, *stage.said)))
        left, right = ("([", "])") if stage.is_not else ("[", "]")
        self.lines.append(f'{indent}{name}{left}"{text}"{right}')
        return name, name


def _escaped(text: str) -> str:
    return html.escape(text).replace("&quot;", "#quot;").replace("&#x27;", "#39;")


# --- SVG ------------------------------------------------------------------------------------------------------------


@dataclass
class _Box:
    lines: list[str]
    x: int
    y: int
    width: int
    height: int
    kind: str = "stage"

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def render_svg(stages: Sequence[DrawnStage]) -> str:
    """Return the SVG drawing."""
    drawing = _Svg()
    x, y = drawing.row(stages, _MARGIN, _MARGIN)
    width, height = x + _MARGIN, y + _MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        *drawing.groups,
        *drawing.parts,
        "</svg>",
    ]) + "\n"  # fmt: skip


class _Svg:
    def __init__(self) -> None:
        self.groups: list[str] = []
        self.parts: list[str] = []
        self._last: _Box | None = None

    def row(self, stages: Sequence[DrawnStage], x: int, y: int) -> tuple[int, int]:
        """Draw stages in a row from a position; return the right and bottom edges."""
        right, bottom, left = x, y, x
        for stage in stages:
            if stage.is_not and self._last is not None:
                box = self._box(stage, self._last.x, self._last.y + self._last.height + _LINE * 2, "not")
                self.parts += _arrow(self._last, box, stage.arrow, is_below=True)
                right, bottom = max(right, box.x + box.width), max(bottom, box.y + box.height)
                continue
            begin = left if left == x else left + _GAP
            if stage.parts:
                end, low = self._group(stage, begin, y)
            else:
                before, box = self._last, self._box(stage, begin, y, "stage")
                if before is not None:
                    self.parts += _arrow(before, box, stage.arrow)
                self._last, end, low = box, box.x + box.width, box.y + box.height
            right, bottom, left = max(right, end), max(bottom, low), end
        return right, bottom

    def _group(self, stage: DrawnStage, x: int, y: int) -> tuple[int, int]:
        first = DrawnStage(stage.parts[0].name, stage.parts[0].said, stage.arrow, False, stage.parts[0].parts)
        right, bottom = self.row((first, *stage.parts[1:]), x + _PAD, y + _LINE + _PAD)
        right, bottom = right + _PAD, bottom + _PAD
        text = html.escape(", ".join(stage.said) or "group")
        self.groups.append(
            f'<rect x="{x}" y="{y}" width="{right - x}" height="{bottom - y}" rx="6" fill="none" stroke="#999"/>'
            f'<text x="{x + _PAD}" y="{y + _LINE}" fill="#666">{text}</text>'
        )
        return right, bottom

    def _box(self, stage: DrawnStage, x: int, y: int, kind: str) -> _Box:
        lines = [stage.name, *stage.said]
        box = _Box(lines, x, y, 20 + _LETTER * max(map(len, lines)), _LINE * len(lines) + 8, kind)
        self.parts += _drawn(box)
        return box


def _drawn(box: _Box) -> Iterator[str]:
    fill, stroke = ("#fbeeee", "#8b3636") if box.kind == "not" else ("#eef4fb", "#36648b")
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )
    for index, line in enumerate(box.lines):
        weight = ' fill="#666"' if index else ""
        yield f'<text x="{box.x + 10}" y="{box.y + _LINE * (index + 1)}"{weight}>{html.escape(line)}</text>'


def _arrow(before: _Box, box: _Box, label: str, is_below: bool = False) -> Sequence[str]:
    if is_below:
        x = before.x + before.width // 2
        ends, position = f'x1="{x}" y1="{before.y + before.height}" x2="{x}" y2="{box.y}"', (x + 6, box.y - _LINE + 4)
    else:
        ends = f'x1="{before.x + before.width}" y1="{before.middle}" x2="{box.x}" y2="{box.middle}"'
        position = (before.x + before.width + 8, min(before.middle, box.middle) - 5)
    dashes = ' stroke-dasharray="4"' if is_below else ""
    return (
        f'<line {ends} stroke="#555"{dashes} marker-end="url(#arrow)"/>',
        f'<text x="{position[0]}" y="{position[1]}" fill="#555">{html.escape(label)}</text>',
    )
