"""Plans for people and for tools: text, Mermaid, SVG, and JSON in Flink's shape."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest

from penstock.datastream import StreamExecutionEnvironment


def program():
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    words = env.from_collection(["a"]).map(str.upper).name('say "A" & <b>').uid("upper")
    words.set_description("makes it loud")
    counts = words.key_by(lambda w: w).sum()
    counts.print().slot_sharing_group("out")
    return env, words


def test_the_plan_as_text():
    """E4, B4: which operators run in one task, and how records get there."""
    env, _ = program()
    assert env.explain() == (
        "Penstock Streaming Job: 4 vertices, 4 slots\n"
        "[0] parallelism 1\n"
        "    Collection Source (state)\n"
        "[1] parallelism 2\n"
        "    <- [0] REBALANCE\n"
        '    say "A" & <b> (uid upper)\n'
        "        makes it loud\n"
        "[2] parallelism 2\n"
        "    <- [1] HASH\n"
        "    Keyed Sum (state)\n"
        "[3] parallelism 2, slot sharing group out\n"
        "    <- [2] FORWARD\n"
        "    Print (state)\n"
    )


def test_the_plan_of_a_stream_is_its_own_part():
    """E4: what makes one stream, and nothing of what comes behind; the program can still be executed."""
    env, words = program()
    assert "[1]" in words.explain()
    assert "Keyed Sum" not in words.explain()
    assert len(env.job_graph().vertices) == 4
    env.close()
    with pytest.raises(ValueError, match="nothing to execute"):
        env.get_execution_plan()


def test_the_plan_as_mermaid():
    """E4: boxes and arrows, with names that would break the syntax escaped."""
    assert program()[0].plan().to_mermaid() == (
        "flowchart LR\n"
        '    v0["Collection Source<br/>x 1"]\n'
        '    v1["say #quot;A#quot; &amp; &lt;b&gt;<br/>   makes it loud<br/>x 2"]\n'
        '    v2["Keyed Sum<br/>x 2"]\n'
        '    v3["Print<br/>x 2"]\n'
        "    v0 -- REBALANCE --> v1\n"
        "    v1 -- HASH --> v2\n"
        "    v2 -- FORWARD --> v3\n"
    )


def test_the_plan_as_svg():
    """E4: well-formed, a box a vertex, an arrow and a label an edge, nothing drawn over each other."""
    env, words = program()
    root = ElementTree.fromstring(env.plan().to_svg())
    space = "{http://www.w3.org/2000/svg}"
    boxes = [{k: int(v) for k, v in r.attrib.items() if v.isdecimal()} for r in root.iter(f"{space}rect")]
    texts = [text.text for text in root.iter(f"{space}text")]
    assert len(boxes) == 4
    assert len(list(root.iter(f"{space}line"))) == 3
    assert 'say "A" & <b>' in texts
    assert {"REBALANCE", "HASH", "FORWARD"} <= set(texts)
    rows = sorted((box["y"], box["y"] + box["height"]) for box in boxes)
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(rows))
    assert words._repr_html_().startswith("<svg")


def test_the_plan_as_json():
    """E4: the shape that Flink's tools read."""
    nodes = json.loads(program()[0].get_execution_plan())["nodes"]
    assert [(n["id"], n["type"], n["pact"], n["parallelism"]) for n in nodes] == [
        (1, "Source: Collection Source", "Data Source", 1),
        (2, 'say "A" & <b>', "Operator", 2),
        (3, "Keyed Sum", "Operator", 2),
        (4, "Sink: Print", "Data Sink", 2),
    ]
    assert nodes[1]["contents"] == "makes it loud"
    assert "predecessors" not in nodes[0]
    assert nodes[2]["predecessors"] == [{"id": 2, "ship_strategy": "HASH", "side": "second"}]
