from ouro.frontends.file_index import FileIndex

NAMES = [
    "README.md",
    "src/api/server.py",
    "src/api/routes.py",
    "src/İstanbul.py",
    "tests/test_server.py",
    "docs/a b.md",
]


def test_prefix_matches_rank_before_substring_and_fuzzy_ones():
    assert FileIndex(NAMES).search("server") == ["src/api/server.py", "tests/test_server.py"]
    assert FileIndex(NAMES).search("sapir") == ["src/api/routes.py", "src/api/server.py"]


def test_search_ignores_case_and_excludes_mismatches():
    assert FileIndex(["README.md", "src/Main.py"]).search("MAIN") == ["src/Main.py"]
    assert FileIndex(["README.md"]).search("xyz") == []


def test_empty_search_returns_the_first_names():
    assert FileIndex(NAMES).search("", 2) == NAMES[:2]
