from ouro.frontends.file_index import FileIndex

NAMES = [
    "README.md",
    "src/api/server.py",
    "src/api/routes.py",
    "src/İstanbul.py",
    "tests/test_server.py",
    "docs/a b.md",
]


def test_names_that_begin_so_come_first_then_those_that_hold_it_then_scattered_letters():
    assert FileIndex(NAMES).search("server") == ["src/api/server.py", "tests/test_server.py"]
    assert FileIndex(NAMES).search("sapir") == ["src/api/routes.py", "src/api/server.py"]


def test_case_does_not_matter_and_what_does_not_fit_is_not_found():
    assert FileIndex(["README.md", "src/Main.py"]).search("MAIN") == ["src/Main.py"]
    assert FileIndex(["README.md"]).search("xyz") == []


def test_an_empty_needle_gives_the_first_names():
    assert FileIndex(NAMES).search("", 2) == NAMES[:2]
