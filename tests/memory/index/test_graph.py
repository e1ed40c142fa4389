import pytest

from ouro.memory.index import Graph, Index, MemoryFolder, Sources
from ouro.memory.long_term.notes.note import Edge, Note, Relation, note_text


@pytest.fixture
def graph_of(tmp_path):
    index = Index(tmp_path / "cache" / "index.db")
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)

    def make(*notes: Note) -> Graph:
        for note in notes:
            (folder / note.file_name).write_text(note_text(note))
        index.update(Sources(memories=(MemoryFolder("repo", "/p", folder),)))
        return Graph(index)

    yield make
    index.close()


def note(number: int, text: str = "", **fields) -> Note:
    return Note(id=f"mem_0000000{number}", text=text or f"note {number}", **fields)


def ids(*numbers: int) -> list[str]:
    return [f"mem_0000000{number}" for number in numbers]


def test_a_chain_is_walked_from_any_of_its_notes(graph_of):
    graph = graph_of(
        note(1), note(2, supersedes="mem_00000001"), note(3, supersedes="mem_00000002"), note(4)
    )

    for number in (1, 2, 3):
        assert graph.find_versions(f"mem_0000000{number}") == ids(1, 2, 3)
        assert graph.find_latest([f"mem_0000000{number}"]) == {
            f"mem_0000000{number}": "mem_00000003"
        }
    assert graph.find_versions("mem_00000004") == ids(4)


def test_cyclic_chain_ends(graph_of):
    graph = graph_of(note(1, supersedes="mem_00000002"), note(2, supersedes="mem_00000001"))

    assert sorted(graph.find_versions("mem_00000001")) == ids(1, 2)


def test_an_unknown_note_has_no_chain(graph_of):
    assert graph_of(note(1)).find_versions("mem_99999999") == []


def test_neighbours_are_found_along_edges_in_either_direction(graph_of):
    graph = graph_of(
        note(1, related=(Edge("mem_00000002", "refines"),)),
        note(2),
        note(3, related=(Edge("mem_00000002", "contradicts"),)),
        note(4, related=(Edge("mem_00000003", "relates-to"),)),
    )

    assert graph.neighbours(ids(1), 1) == {"mem_00000002": (1, "refines")}
    assert sorted(graph.neighbours(ids(1), 3)) == ids(2, 3, 4)
    assert graph.neighbours(ids(1), 3)["mem_00000004"] == (3, "relates-to")
    assert graph.neighbours([], 3) == {}


def test_neighbours_are_found_through_entity_relations(graph_of):
    tested = Relation("file:api.py", "tested_by", "cmd:pytest tests/test_api.py")
    graph = graph_of(
        note(1, entities=("file:api.py",), relations=(tested,)),
        note(2, entities=("cmd:pytest tests/test_api.py",)),
    )

    assert graph.neighbours(ids(1), 1) == {"mem_00000002": (1, "tested_by")}
    assert graph.neighbours(ids(2), 1) == {"mem_00000001": (1, "tested_by")}


def test_notes_naming_rare_entities_rank_first(graph_of):
    graph = graph_of(
        note(1, entities=("file:api.py", "tool:ruff")), note(2, entities=("tool:ruff",)), note(3)
    )

    assert graph.find_naming(["tool:ruff", "file:api.py"]) == {
        "mem_00000001": 1.5,
        "mem_00000002": 0.5,
    }
    assert graph.find_naming([f"file:{number}.py" for number in range(2_000)]) == {}
