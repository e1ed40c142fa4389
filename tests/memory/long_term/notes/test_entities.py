import pytest

from ouro.memory.long_term.notes.entities import entities_in, normalize_entities, normalize_entity


@pytest.mark.parametrize(
    "path",
    ["api.py", "./api.py", "src/../api.py", ".//api.py", "/repo/api.py", "/repo/src/../api.py"],
)
def test_file_paths_are_normalized(path):
    assert normalize_entity(f"file:{path}", "/repo") == "file:api.py"


@pytest.mark.parametrize("path", [".", "/", "..", "../x", "/repo", "/repo/", "/repo/.", "a/../.."])
def test_the_folder_itself_and_what_is_above_it_are_no_files(path):
    assert normalize_entity(f"file:{path}", "/repo") == ""


@pytest.mark.parametrize(
    ("written", "one_name"),
    [
        ("cmd:$ pytest   tests", "cmd:pytest tests"),
        ("Command: make test", "cmd:make test"),
        ("pkg:Ruamel_YAML", "pkg:ruamel-yaml"),
        ("function:parse_line()", "symbol:parse_line"),
        ("tool:Ruff", "tool:ruff"),
        ("file:../outside.py", ""),
        ("planet:mars", ""),
        ("api.py", ""),
        ("file:", ""),
        ("file:" + "x" * 200, ""),
    ],
)
def test_entities_are_normalized_or_dropped(written, one_name):
    assert normalize_entity(written) == one_name


def test_the_same_entity_is_listed_once():
    assert normalize_entities(["file:./a.py", "file:a.py", "nonsense", "tool:ruff"]) == (
        "file:a.py",
        "tool:ruff",
    )


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("fix the import in ./src/../api.py", {"file:api.py"}),
        (
            "run `pytest -q tests/test_api.py` first",
            {"tool:pytest", "cmd:pytest -q tests/test_api.py", "file:tests/test_api.py"},
        ),
        ("```sh\n$ make lint\n```", {"tool:make", "cmd:make lint"}),
        ("UserStore.save() is slow", {"symbol:UserStore.save"}),
        ("never pip install requests_mock here", {"pkg:requests-mock"}),
        ("all of src/api/ is generated", {"file:src/api"}),
        ("Version 3.11 of e.g. example.com, i.e. nothing.", set()),
        (
            "```python\nfrom flask.views import View\nimport numpy as np\n```",
            {"pkg:flask", "pkg:numpy"},
        ),
        ("just make it go, then import what you need", set()),
        ("What did we decide about the weather?", set()),
        ("set `line-length = 100` and DATABASE_URL", {"config:line-length", "config:database_url"}),
        ("```yaml\nmemory.retrieval: hyde\n```", {"config:memory.retrieval"}),
    ],
)
def test_entities_are_found_in_a_text(text, entities):
    assert set(entities_in(text)) == entities
