"""The tool `glob`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.tool_benches import call

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.glob import Glob, GlobArgs, expand_braces, find_names, name_pattern
from ouro.utils.git_process import start_git


@pytest.fixture
def root(tmp_path) -> Path:
    names = [
        "a.py",
        "src/b.py",
        "src/deep/c.py",
        "src/d.ts",
        "node/x.js",
        "README.md",
        "src/.hidden",
    ]
    for age, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / ".gitignore").write_text("node/\n")
    os.utime(tmp_path / ".gitignore", (1, 1))
    return tmp_path


async def run_glob(root: Path, pattern: str, **arguments) -> str:
    return (await call(Glob(Workspace(root)), pattern=pattern, **arguments)).text


@pytest.mark.parametrize("is_repository", [True, False])
async def test_newest_files_come_first_and_ignored_files_are_left_out(root, is_repository):
    if is_repository:
        subprocess.run(["git", "init", "-q", root], check=True)
    assert await run_glob(root, "*.py") == "a.py\nsrc/b.py\nsrc/deep/c.py"
    assert (
        await run_glob(root, "**")
        == "a.py\nsrc/b.py\nsrc/deep/c.py\nsrc/d.ts\nREADME.md\nsrc/.hidden\n.gitignore"
    )
    assert await run_glob(root, "*.{ts,md}") == "src/d.ts\nREADME.md"
    assert await run_glob(root, "*.py", path="src") == "src/b.py\nsrc/deep/c.py"
    assert await run_glob(root, "src/*.py") == "src/b.py"
    assert await run_glob(root, f"{root}/src/*.py") == "src/b.py"
    assert (
        await run_glob(root, "*.js")
        == "No file has a name that matches *.js. Files that .gitignore excludes were not"
        " searched. "
        "To search for text in files, use grep."
    )
    assert await run_glob(root, "*.js", ignored=True) == "node/x.js"
    assert "To search another folder, name it in path. To search for text" in await run_glob(
        root, "../*.js"
    )


async def test_a_name_with_a_line_end_is_one_line(repository):
    (repository / "a\nb.txt").touch()
    assert await run_glob(repository, "*b.txt") == "a\\u000ab.txt"


async def test_a_deleted_file_that_git_still_lists_is_not_found(repository):
    (repository / "api.py").unlink()
    assert (await run_glob(repository, "*.py")).startswith("No file has a name that matches")


async def test_more_than_100_files_are_cut_and_counted(tmp_path):
    for number in range(150):
        (tmp_path / f"{number}.txt").touch()
    result = await call(Glob(Workspace(tmp_path)), pattern="*.txt")
    assert len(result.text.split("\n")) == 101
    assert result.text.endswith(
        "\n[100 of 150, the newest. Narrow the pattern or the path to see others.]"
    )
    assert result.display.summary == "150 files"


async def test_file_or_missing_path_as_folder_is_refused(root):
    with pytest.raises(ToolError, match=r"^a\.py is a file, not a folder\.$"):
        await run_glob(root, "*", path="a.py")
    with pytest.raises(ToolError, match=r"^none does not exist\.$"):
        await run_glob(root, "*", path="none")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", "x/a.py", ".py"], ["a.pyc", "a.py/x"]),
        ("src/*", ["src/a"], ["src/a/b", "a/src/a"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "lib/a"]),
        ("**/test_*.py", ["test_a.py", "x/y/test_a.py"], ["x/a_test.py"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["ab"]),
        ("[ab]?.txt", ["ax.txt"], ["cx.txt", "a.txt"]),
        ("[!a].c", ["b.c"], ["a.c"]),
        ("{a,b{c,d}}.x", ["a.x", "bc.x", "bd.x"], ["b.x"]),
        ("!*.py", ["a.c"], ["a.py"]),
        ("app/[id]/*.tsx", ["app/[id]/a.tsx", "app/i/a.tsx"], ["app/x/a.tsx"]),
        ("src/", ["src/a"], ["lib/a"]),
        ("a[.txt", ["a[.txt"], ["a.txt"]),
        ("a+(b).c", ["a+(b).c"], ["aab.c"]),
    ],
)
def test_statement_patterns_match_as_in_a_shell(pattern, fits, does_not):
    test = name_pattern(pattern)
    assert (
        [name for name in fits if not test(name)],
        [name for name in does_not if test(name)],
    ) == ([], [])


@pytest.mark.parametrize("pattern", ["{a,b}" * 20, "{a}" * 2_000], ids=["forms", "depth"])
def test_too_many_braces_are_refused(pattern):
    with pytest.raises(ToolError, match="too many"):
        expand_braces(pattern)


PATTERNS = (
    "*.py", "**", "**/*", "!*.py", "*", "a.py", "src/**/*.{py,ts}", "**/**/b?.py", "[ab]*.py", "b*", "[b].py",
    "src/", "*{a,b}", "caf\u00e9*", "x**/**/a.py", "**/**", "f99*.py", "\u00e9.py", "]x", "*.p*",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_names_in_texts_are_those_that_the_pattern_matches(pattern):
    folders = ("", "src/", "src/deep/", "x/y/a.py/", "[b]/", "f99/", "xq/z/")
    files = (
        "a.py",
        "b1.py",
        "b.ts",
        "[b].py",
        "caf\u00e9.py",
        "cafe\u0301.py",
        "e\u0301.py",
        "f991.py",
        "]x",
        "\n.py",
    )
    names = [f"{folder}{file}" for folder in folders for file in files]
    names += [f"many/{number}.txt" for number in range(1_000)]
    expected = list(filter(name_pattern(pattern), names))
    assert list(find_names(pattern, ["\0".join(names)])) == expected
    assert list(find_names(pattern, names)) == expected


@pytest.mark.parametrize(("pattern", "processes"), [("*.py", 2), ("**/api*.py", 1)])
async def test_a_second_git_lists_only_for_a_pattern_of_many_files(
    repository, monkeypatch, pattern, processes
):
    started = []

    def start(*arguments, **options):
        started.append(arguments)
        return start_git(*arguments, **options)

    monkeypatch.setattr("ouro.utils.git_process.start_git", start)
    found = await Glob(Workspace(repository)).run(GlobArgs(pattern), None)
    assert (found.text, len(started)) == ("api.py", processes)


def test_a_file_of_another_name_costs_few_calls(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    few = _calls_of_glob(tmp_path, range(200), "**/want*.py")
    many = _calls_of_glob(tmp_path, range(200, 1_200), "**/want*.py")
    assert (many - few) / 1_000 < 2


def test_a_file_with_the_ending_costs_few_calls(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    few = _calls_of_glob(tmp_path, range(200), "*.ts")
    many = _calls_of_glob(tmp_path, range(200, 1_200), "*.ts")
    assert (many - few) / 1_000 < 5  # 7 with a regular expression for each


def _calls_of_glob(root: Path, numbers: range, pattern: str) -> int:
    """Add files; the number of functions that a search calls."""
    for number in numbers:
        place = root / f"d{number // 50}" / f"f{number}.ts"
        place.parent.mkdir(exist_ok=True)
        place.write_text("")
    (root / "wanted.py").write_text("")
    calls = 0

    def count(_frame, event, _argument) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tool = Glob(Workspace(root))
    tool._find_files(GlobArgs(pattern))  # what is loaded and cached at the first search
    sys.setprofile(count)
    try:
        found = tool._find_files(GlobArgs(pattern))
    finally:
        sys.setprofile(None)
    assert ("wanted.py" in found.text) == (pattern != "*.ts")
    return calls
