"""Drawings of what was measured, by Matplotlib: an SVG or a PNG, as the file's ending says."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

OURS, OTHER, THIRD, FOURTH = "#1f6f8b", "#b8b8b8", "#e0894b", "#7a5195"


def check() -> None:
    """Raise `ClickException` where nothing can be drawn."""
    _figure()


def _figure() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise click.ClickException(
            "drawing needs Matplotlib: run it by `make bench`, or `scripts/env bench` first"
        ) from None
    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.6), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=120)


def ratios(found: dict[str, Any], title: str, path: Path) -> None:
    """A bar a workload, from the lowest to the highest ratio a line."""
    figure, axes = _figure()
    names = [f"{key}\n" + textwrap.fill(one["name"], 16) for key, one in found.items()]
    middle = [one["ratio"] for one in found.values()]
    spread = [
        [m - min(one["ratios"]) for m, one in zip(middle, found.values(), strict=True)],
        [max(one["ratios"]) - m for m, one in zip(middle, found.values(), strict=True)],
    ]
    axes.bar(names, middle, yerr=spread, color=OURS, ecolor="#555555", capsize=3, width=0.6)
    axes.axhline(1.0, color=OTHER, linewidth=1)
    axes.set_ylabel("Penstock's rate over the other's")
    axes.set_title(title, fontsize=10)
    axes.tick_params(axis="x", labelsize=7)
    _save(figure, path)


def builds(compared: dict[str, Any], title: str, path: Path) -> None:
    """The median ratio of each workload with its interval, and the line below which a build has fallen."""
    from benchmarks.builds import RATIO_MIN

    figure, axes = _figure()
    medians = [one.median for one in compared.values()]
    spread = [
        [median - one.interval[0] for median, one in zip(medians, compared.values(), strict=True)],
        [one.interval[1] - median for median, one in zip(medians, compared.values(), strict=True)],
    ]
    axes.errorbar(list(compared), medians, yerr=spread, fmt="o", color=OURS, ecolor="#555555", capsize=3)
    axes.axhline(1.0, color=OTHER, linewidth=1)
    axes.axhline(RATIO_MIN, color=THIRD, linewidth=1, linestyle="--")
    axes.set_ylabel("speed of this build over the other's")
    axes.set_title(title, fontsize=10)
    _save(figure, path)


def _lines(
    title: str,
    path: Path,
    x: Sequence[int],
    lines: dict[str, tuple[list[float], str]],
    labels: tuple[str, str],
    log: bool,
) -> None:
    figure, axes = _figure()
    for name, (values, colour) in lines.items():
        axes.plot(x, values, marker="o", label=name, color=colour)
    if log:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False)
    _save(figure, path)


def key_sweep(found: dict[str, Any], title: str, path: Path) -> None:
    """Rates of both sides over the number of keys."""
    lines = {
        "bare loop": ([one["twin_rate"] / 1e6 for one in found.values()], OTHER),
        "Penstock": ([one["rate"] / 1e6 for one in found.values()], OURS),
    }
    _lines("keyed reduce", path, [int(k) for k in found], lines, ("keys", "million events a second"), log=True)


def task_sweep(found: dict[str, Any], title: str, path: Path) -> None:
    """Processor time of an event and map over the number of maps."""
    columns = list(zip(*(one["nanoseconds"] for one in found.values()), strict=True))
    names = (("bare loop", OTHER), ("one chain", OURS), ("separate tasks", THIRD))
    lines = {name: (list(column), colour) for (name, colour), column in zip(names, columns, strict=True)}
    _lines("maps in a row", path, [int(k) for k in found], lines, ("maps", "ns per event and map"), log=False)


def intervals(found: dict[str, Any], title: str, path: Path) -> None:
    """Rates with a checkpoint every second and every ten, as parts of that without."""
    figure, axes = _figure()
    for offset, (part, colour) in enumerate((("10 s / none", OTHER), ("1 s / none", OURS))):
        x = [i + (offset - 0.5) * 0.35 for i in range(len(found))]
        axes.bar(x, [one["parts"][part] for one in found.values()], width=0.33, color=colour, label=part)
    axes.axhline(1.0, color=OTHER, linewidth=1)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylabel("share of the rate without checkpoints")
    axes.legend(frameon=False, loc="lower right")
    _save(figure, path)


def graph_curves(found: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    """Seconds of each side over the number of edges, a picture for each algorithm beside the other."""
    figure, axes = _figure()
    axes.remove()
    colours = {"Penstock on Spark": OURS, "Penstock, local": OURS, "GraphX": THIRD, "joins by hand": FOURTH}
    for number, (algorithm, by_size) in enumerate(found.items(), 1):
        part = figure.add_subplot(1, len(found), number)
        part.spines[["top", "right"]].set_visible(False)
        sides = dict.fromkeys(name for best in by_size.values() for name in best)
        for name, style in zip(sides, (":", "-", "--", "-", "-"), strict=False):
            points = [(size, best[name]) for size, best in by_size.items() if name in best]
            part.plot(*zip(*points, strict=True), style, marker="o", label=name, color=colours.get(name, OTHER))
        part.set_xscale("log")
        part.set_yscale("log")
        part.set_xlabel("edges")
        part.set_ylabel("seconds")
        part.set_title(algorithm, fontsize=10)
        part.legend(frameon=False, fontsize=7)
    _save(figure, path)
