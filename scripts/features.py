"""Writes the page of Flink's features from its file, says whether the page is as the file has it, or prints the sums.

scripts/run python scripts/features.py docs/flink-features.toml docs/flink-features.md

With `--list missing` it prints the features of a verdict, those that users miss most first.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: The verdicts, in the order of the tables of sums, with what they mean.
VERDICTS = {
    "works": "as in Flink, or as the line says",
    "differs": "works, with the difference that the note names",
    "partly": "the note names the part that works, or the part that does not",
    "refused": "is absent, and an error says so",
    "missing": "is absent",
    "left out": "is absent on purpose, for the reason in the note",
    "n/a": "means nothing here, for the reason in the note",
}
#: The verdicts that a test has to prove.
PROVEN = ("works", "differs", "partly")

BEGIN = """# Flink's features, one by one

This page is generated from [flink-features.toml](flink-features.toml) by `make features`. Each line is a feature of
Flink 2.3, of a project around it, or of a neighbour, with what Penstock has of it. A test checks that the page is as
the file has it, that the tests named here exist, and that what is called missing is still absent. Penstock's promises,
with their proofs, are on [a page of their own](promises.md); results that differ from Flink's are in [a
table](sql.md#where-results-differ-from-flinks). `python scripts/features.py docs/flink-features.toml
docs/flink-features.md --list missing` prints what is missing, by weight.

The weight says how much the users of a feature miss it, from 1 to 5. *Flink* says where Flink has the feature: in which
API, in SQL, as an option, or in another project.
"""


@dataclass(frozen=True)
class Feature:
    """A line of the file.

    Attributes:
        section: the title of its section.
        feature: what it is.
        flink: where Flink has it.
        verdict: one of `VERDICTS`.
        weight: how much its users miss it, from 1 to 5.
        page: the page that describes it, below docs/, with an anchor.
        tests: the files or ids of tests that prove the verdict.
        note: a sentence on the verdict.
        absent: a name that exists only once the verdict is out of date.
    """

    section: str
    feature: str
    flink: str
    verdict: str
    weight: int
    page: str = ""
    tests: Sequence[str] = ()
    note: str = ""
    absent: str = ""


def read_features(path: Path) -> list[Feature]:
    """The features of a file, in its order."""
    sections = tomllib.loads(path.read_text())["section"]
    return [Feature(section=section["title"], **line) for section in sections for line in section["feature"]]


def format_page(features: Sequence[Feature]) -> str:
    """The text of the page."""
    parts = [BEGIN, "\n## Sums\n\n", _format_sums(features), "\n", _format_sums_by_section(features)]
    for title in dict.fromkeys(feature.section for feature in features):
        parts.append(f"\n## {title}\n\n| feature | Flink | Penstock | weight | |\n| --- | --- | --- | --- | --- |\n")
        parts += [_format_line(feature) for feature in features if feature.section == title]
    return "".join(parts)


def summarize(features: Sequence[Feature]) -> str:
    """How much of the weight of all features works, in a sentence."""
    applying = [feature for feature in features if feature.verdict != "n/a"]
    share = {verdict: _weigh(applying, verdict) / _weigh(applying) for verdict in VERDICTS}
    return (
        f"By weight {share['works']:.0%} of what applies works, "
        f"{share['works'] + share['differs']:.0%} with what differs, and "
        f"{sum(share[verdict] for verdict in PROVEN):.0%} with what works partly."
    )


def _format_sums(features: Sequence[Feature]) -> str:
    lines = ["| verdict | meaning | lines | weight |\n| --- | --- | --- | --- |\n"]
    for verdict, meaning in VERDICTS.items():
        count = sum(feature.verdict == verdict for feature in features)
        lines.append(f"| {verdict} | {meaning} | {count} | {_weigh(features, verdict)} |\n")
    lines.append(f"| all | | {len(features)} | {_weigh(features)} |\n\n{summarize(features)}\n")
    return "".join(lines)


def _format_sums_by_section(features: Sequence[Feature]) -> str:
    lines = [f"| section | {' | '.join(VERDICTS)} | works, by weight |\n| --- |{' --- |' * (len(VERDICTS) + 1)}\n"]
    for title in dict.fromkeys(feature.section for feature in features):
        members = [feature for feature in features if feature.section == title]
        applying = [feature for feature in members if feature.verdict != "n/a"]
        counts = [str(sum(feature.verdict == verdict for feature in members)) for verdict in VERDICTS]
        share = _weigh(applying, "works") / _weigh(applying)
        anchor = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")
        lines.append(f"| [{title}](#{anchor}) | {' | '.join(counts)} | {share:.0%} |\n")
    return "".join(lines)


def _weigh(features: Sequence[Feature], verdict: str | None = None) -> int:
    return sum(feature.weight for feature in features if verdict in (None, feature.verdict))


def _format_line(feature: Feature) -> str:
    links = [f"[page]({feature.page})"] if feature.page else []
    files = dict.fromkeys(test.partition("::")[0] for test in feature.tests)
    links += [f"[{Path(file).stem}](../{file})" for file in files]
    verdict = f"**{feature.verdict}**" if feature.verdict in ("missing", "refused") else feature.verdict
    remarks = " ".join(filter(None, [feature.note, ", ".join(links)]))
    return f"| {feature.feature} | {feature.flink} | {verdict} | {feature.weight} | {remarks} |\n"


def main() -> int:
    """Write the page and print the sums; with --check only compare, and answer 1 if the page is old."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", choices=VERDICTS, metavar="VERDICT")
    arguments = parser.parse_args()
    features = read_features(arguments.source)
    if arguments.check:
        return int(arguments.page.read_text() != format_page(features))
    if arguments.list:
        listed = [feature for feature in features if feature.verdict == arguments.list]
        for feature in sorted(listed, key=lambda feature: -feature.weight):
            print(f"{feature.weight}  {feature.section}: {feature.feature}. {feature.note}".rstrip(". ") + ".")
        return 0
    arguments.page.write_text(format_page(features))
    for verdict in VERDICTS:
        count = sum(feature.verdict == verdict for feature in features)
        print(f"{verdict:10}{count:5} lines  weight {_weigh(features, verdict):4}")
    print(summarize(features))
    return 0


if __name__ == "__main__":
    sys.exit(main())
