"""A counter of all words in the files, each told once."""

import random
from collections import Counter

from examples.batch_word_count import TEXT, build


def run(env, directory):
    chance = random.Random(23)
    folder = directory / "texts"
    folder.mkdir()
    words = TEXT.lower().replace(",", " ").split()
    for number in range(3):
        lines = [", ".join(chance.choices(words, k=7)) for _ in range(100)]
        (folder / f"{number}.txt").write_text("\n".join(lines))
    everything = " ".join(path.read_text() for path in folder.iterdir())
    expected = Counter(everything.replace(",", " ").split())
    build(env, str(folder), str(directory / "counts"))
    env.execute("batch word count")
    parts = [path for path in (directory / "counts").rglob("*") if path.is_file()]
    assert all(path.name.startswith("words-") and path.suffix == ".txt" for path in parts)
    told = Counter(line for path in parts for line in path.read_text().splitlines())
    assert told == Counter(f"({word},{count})" for word, count in expected.items())
