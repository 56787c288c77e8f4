"""Graphs out of text files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gelly.graphs import env_of, records

from penstock.common import Types
from penstock.gelly import Edge, Graph, Vertex


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_values_of_vertices_and_edges(tmp_path: Path) -> None:
    edges = written(tmp_path, "edges", "1,2,ot\n3,2,tt\n3,1,to\n")
    vertices = written(tmp_path, "vertices", "1,one\n2,two\n3,three\n")
    graph = Graph.from_csv_reader(edges, env_of(), vertices).types(int, str, str)
    assert records(graph.get_vertices()) == [Vertex(1, "one"), Vertex(2, "two"), Vertex(3, "three")]
    assert records(graph.get_edges()) == [Edge(1, 2, "ot"), Edge(3, 1, "to"), Edge(3, 2, "tt")]


def test_other_forms(tmp_path: Path) -> None:
    edges = written(tmp_path, "edges", "from|to|x|weight#%a comment#1|2|x|0.5##3|2|x|1.5#")
    reader = Graph.from_csv_reader(edges, env_of(), vertex_value_initializer=lambda vertex_id: vertex_id + 1)
    reader.field_delimiter_edges("|").line_delimiter_edges("#").ignore_comments_edges("%").ignore_first_line_edges()
    graph = reader.include_fields_edges(True, True, False, True).edge_types(Types.LONG(), Types.DOUBLE())
    assert records(graph.get_edges()) == [Edge(1, 2, 0.5), Edge(3, 2, 1.5)]
    assert records(graph.get_vertices()) == [Vertex(1, 2), Vertex(2, 3), Vertex(3, 4)]


@pytest.mark.parametrize("fields", [("1101",), (0b1011,)])
def test_fields_as_text_or_bits(tmp_path: Path, fields: tuple[object, ...]) -> None:
    edges = written(tmp_path, "edges", "1 2 x true\n")
    reader = Graph.from_csv_reader(edges, env_of()).field_delimiter_edges(" ").include_fields_edges(*fields)
    assert records(reader.edge_types(int, bool).get_edges()) == [Edge(1, 2, True)]


def test_ids_only_and_vertices_only(tmp_path: Path) -> None:
    edges = written(tmp_path, "edges", "a;b\r\nb;c\r\n")
    vertices = written(tmp_path, "vertices", "#\nid;value\na;1\nb;2\nc;3")
    graph = Graph.from_csv_reader(edges, env_of()).field_delimiter_edges(";").key_type(str)
    assert records(graph.get_edges()) == [Edge("a", "b", None), Edge("b", "c", None)]
    reader = Graph.from_csv_reader(edges, env_of(), vertices).field_delimiter_edges(";").field_delimiter_vertices(";")
    reader.ignore_comments_vertices("#").ignore_comments_vertices("id").line_delimiter_vertices("\n")
    with pytest.raises(Exception, match="line 1: '#'"):
        records(reader.vertex_types(str, int).get_vertices())


def test_misuse(tmp_path: Path) -> None:
    edges = written(tmp_path, "edges", "1,2\n")
    reader = Graph.from_csv_reader(edges, env_of())
    with pytest.raises(ValueError, match="vertex_value_initializer is needed"):
        reader.types(int, int, int)
    with pytest.raises(ValueError, match="use types or vertex_types"):
        Graph.from_csv_reader(edges, env_of(), edges).key_type(int)
    with pytest.raises(TypeError, match="no type of a field"):
        reader.key_type(3)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        Graph.from_csv_reader(str(tmp_path / "none*"), env_of()).key_type(int)
    with pytest.raises(Exception, match="line 1: '1,2'"):
        records(reader.edge_types(int, int).get_edges())
