"""The tool `grep`."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.tool_benches import call

from ouro.errors import ToolError
from ouro.safety import Permissions, Workspace
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs, GrepSearch, _run_with_limits, find_ripgrep
from ouro.tools.tool import parse_arguments

TREE: dict[str, str | bytes] = {
    "api.py": (
        "import os\n\n\ndef hello(name):\n    return 'hello ' + name\n\n\ndef bye(name):\n   "
        " return 'bye'\n"
    ),
    "src/deep/util.py": "def helper():\n    hello('you')\n",
    "src/app.ts": "export const hello = 1;\r\nhello;\r\n",
    "src/app.min.js": "hello();",
    "docs/notes.md": "Say Hello.\nhello\n",
    "docs/utf16.txt": "\ufeffhello there\n".encode("utf-16-le"),
    "docs/latin.txt": "hello caf\u00e9\n".encode("latin-1"),
    "data.bin": b"hello\n\x00\x01hello\n",
    "late.bin": b"hello\n" + b"x" * 100_000 + b"\n\x00\n",
    "empty.txt": "",
    "blank.txt": "\n\nhello",
    ".hidden/x.txt": "hello\n",
    ".gitignore": "build/\n*.log\n!keep.log\n/only_here.txt\n",
    "build/out.py": "hello\n",
    "a.log": "hello\n",
    "keep.log": "hello\n",
    "only_here.txt": "hello\n",
    "src/only_here.txt": "hello\n",
    "src/.gitignore": "*.tmp\n!important.tmp\n",
    "src/x.tmp": "hello\n",
    "src/important.tmp": "hello\n",
    "a-b/z.txt": "hello\n",
    "a/z.txt": "hello\n",
    "long.txt": "hello " + "x" * 1000 + "\n",
    ".git/config": "hello\n",
}


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "project"
    for name, content in TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "link.txt").symlink_to("docs/notes.md")
    (folder / "link").symlink_to("src")
    return folder


@pytest.fixture
def grep(root) -> Grep:
    return Grep(Workspace(root))


async def run_grep(grep: Grep, pattern: str, **arguments) -> str:
    return (await call(grep, pattern=pattern, **arguments)).text


async def test_files_mode_lists_unignored_files_in_order(grep):
    assert (await run_grep(grep, "hello", mode="files")).split("\n") == [
        ".hidden/x.txt",
        "a/z.txt",
        "a-b/z.txt",
        "api.py",
        "blank.txt",
        "docs/latin.txt",
        "docs/notes.md",
        "docs/utf16.txt",
        "keep.log",
        "long.txt",
        "src/app.min.js",
        "src/app.ts",
        "src/deep/util.py",
        "src/important.tmp",
        "src/only_here.txt",
        "[Left out: the lines of 2 binary files that match.]",
    ]


async def test_matches_are_grouped_by_file(grep):
    result = await call(grep, pattern="hello", path="src")
    assert (
        result.text
        == "src/app.min.js\n1:hello();\n\nsrc/app.ts\n1:export const hello = 1;\n2:hello;\n\n"
        "src/deep/util.py\n2:    hello('you')\n\n"
        "src/important.tmp\n1:hello\n\nsrc/only_here.txt\n1:hello"
    )
    assert result.display.summary == "6 matches in 5 files"


async def test_shows_lines_around_with_gaps_marked(grep):
    assert (
        await run_grep(grep, "^def", path="api.py", context=1)
        == "api.py\n3-\n4:def hello(name):\n5-    return 'hello ' + name\n--\n7-\n8:def"
        " bye(name):\n9-    return 'bye'"
    )


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ({"glob": "*.py"}, "api.py\nsrc/deep/util.py"),
        ({"glob": "src/**/*.{py,ts}"}, "src/app.ts\nsrc/deep/util.py"),
        ({"glob": "!*.{txt,py,md,js,tmp,log,bin}"}, "src/app.ts"),
        ({"glob": "*.log"}, "keep.log"),
        ({"type": "ts"}, "src/app.ts"),
        ({"type": "md", "ignore_case": True}, "docs/notes.md"),
        ({"path": "build"}, "build/out.py"),
        ({"path": "a.log"}, "a.log"),
        ({"path": "src/deep"}, "src/deep/util.py"),
    ],
)
async def test_is_narrowed_by_path_glob_and_type(grep, arguments, files):
    assert await run_grep(grep, "hello", mode="files", **arguments) == files


@pytest.mark.parametrize(
    ("pattern", "arguments", "text"),
    [
        ("HELLO", {"ignore_case": True, "path": "docs/notes.md"}, "docs/notes.md\n1:Say Hello.\n2:hello"),
        ("hello;$", {"path": "src/app.ts"}, "src/app.ts\n2:hello;"),
        (r"hello\b.*name\)", {"path": "api.py"}, "api.py\n4:def hello(name):"),
        ("^$", {"path": "blank.txt"}, "blank.txt\n1:\n2:"),
        ("name.*return 'b", {"multiline": True, "path": "api.py", "mode": "count"}, "api.py: 6"),
        (r"hello\(name\):\n +return", {"multiline": True, "path": "api.py"},
         "api.py\n4:def hello(name):\n5:    return 'hello ' + name"),
        ("there", {"path": "docs"}, "docs/utf16.txt\n1:hello there"),
        ("-x", {}, "No matches for -x."),
        ("hello", {"path": "data.bin"},
         "No matches for hello. Check path, glob and type.\n[Left out: the lines of 1 binary file that match.]"),
        ("hello", {"path": "docs", "mode": "count"}, "docs/latin.txt: 1\ndocs/notes.md: 1\ndocs/utf16.txt: 1"),
        ("(?<!def )hello", {"path": "api.py"}, "api.py\n5:    return 'hello ' + name"),
    ],
)  # fmt: skip
async def test_pattern_options_are_applied(grep, pattern, arguments, text):
    assert await run_grep(grep, pattern, **arguments) == text


async def test_limit_reports_that_more_matches_exist(grep):
    more = "\n[More matches exist. Narrow the pattern, path or glob, or raise limit.]"
    assert await run_grep(grep, "hello", path="src", limit=2) == (
        "src/app.min.js\n1:hello();\n\nsrc/app.ts\n1:export const hello = 1;" + more
    )
    assert (
        await run_grep(grep, "hello", path="src", limit=2, mode="files")
        == "src/app.min.js\nsrc/app.ts" + more
    )
    assert not (await run_grep(grep, "hello", path="src", limit=6)).endswith("]")


async def test_long_lines_are_cut(grep):
    assert (
        await run_grep(grep, "hello", path="long.txt")
        == "long.txt\n1:hello " + "x" * 394 + " [cut]"
    )


@pytest.mark.parametrize("filler", [b"ab;", "é;".encode(), b"\xe9;"])
async def test_the_match_of_a_long_line_is_shown(grep, root, filler):
    (root / "one.min.js").write_bytes(filler * 3000 + b"needle()" + filler * 3000)
    shown = (await run_grep(grep, "needle", path="one.min.js")).removeprefix("one.min.js\n1:")
    assert shown.startswith("[cut] ")
    assert shown.endswith(" [cut]")
    assert shown.index("needle()") == len("[cut] ") + 100
    assert len(shown) == 400 + 2 * len("[cut] ")


async def test_of_a_long_line_that_matches_at_its_end_the_end_is_shown(grep, root):
    (root / "data.json").write_text("x" * 5000 + " END")
    shown = await run_grep(grep, "END", path="data.json")
    assert shown == "data.json\n1:[cut] " + "x" * 99 + " END"


async def test_invalid_regular_expression_is_reported(grep):
    with pytest.raises(ToolError, match=r"^a\( is not a regular expression: "):
        await run_grep(grep, "a(")


async def test_missing_path_is_reported(grep):
    with pytest.raises(ToolError, match=r"^none does not exist\.$"):
        await run_grep(grep, "x", path="none")


async def test_file_names_that_are_not_utf8_are_found(grep, root):
    try:
        (root / os.fsdecode(b"src/\xff.txt")).write_text("umlaut\n")
    except OSError:
        pytest.skip("this disk takes no such name")
    assert (await call(grep, pattern="umlaut")).display.summary == "1 match in 1 file"


async def test_ripgrep_config_of_the_user_is_ignored(root, monkeypatch, tmp_path):
    (tmp_path / "rc").write_text(f"--pre=touch\n--hostname-bin={tmp_path}/x\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert await run_grep(Grep(Workspace(root)), "helper", mode="files") == "src/deep/util.py"


async def test_search_of_the_home_leaves_out_ssh_keys(home):
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("secret\n")
    (home / "x.txt").write_text("secret\n")
    assert await run_grep(Grep(Workspace(home)), "secret", mode="files") == "x.txt"


async def test_gitignore_applies_within_its_repository_only(tmp_path):
    outer = tmp_path / "outer"
    (outer / "repo/sub").mkdir(parents=True)
    (outer / ".gitignore").write_text("*.txt\n")
    (outer / "repo/.gitignore").write_text("*.log\n")
    subprocess.run(["git", "init", "-q", outer / "repo"], check=True)
    for name in ("a.txt", "a.log"):
        (outer / "repo/sub" / name).write_text("hello\n")
    assert (
        await run_grep(Grep(Workspace(outer / "repo")), "hello", path="sub", mode="files")
        == "sub/a.txt"
    )


def test_title_names_path_and_type(root):
    grep = Grep(Workspace(root))
    assert grep.title(parse_arguments(grep, {"pattern": "x"})) == 'grep "x"'
    assert (
        grep.title(parse_arguments(grep, {"pattern": "x", "path": "src", "type": "py"}))
        == 'grep "x" in src, py'
    )


@pytest.mark.parametrize("limit", [8_000_000, 300])
async def test_results_are_sorted_by_path_above_and_below_the_limit(root, grep, monkeypatch, limit):
    names = [f"many{number:02}.txt" for number in range(40)]
    for name in reversed(names):
        (root / name).write_text("hello\n" * 3)
    monkeypatch.setattr("ouro.tools.grep_search._MAX_UNSORTED", limit)
    assert (await run_grep(grep, "hello", glob="many*", mode="files")).split("\n") == names


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", "api.py src/deep/util.py"),
        ("src/**/*.{py,ts}", "src/app.ts src/deep/util.py"),
        ("{src,docs}/*.md", "docs/notes.md"),
        ("[a]*", "api.py src/app.min.js src/app.ts"),
        ("{a,b/c}.p*y", ""),
    ],
)
async def test_a_glob_includes_no_ignored_file(grep, glob, files):
    text = await run_grep(grep, "hello", glob=glob, mode="files")
    assert text.split("\n") == files.split() if files else text.startswith("No matches")


async def test_missing_ripgrep_is_reported_to_the_model(grep, monkeypatch):
    monkeypatch.setattr("ouro.tools.grep_search.find_ripgrep", lambda: None)
    with pytest.raises(ToolError, match="ripgrep is missing"):
        await run_grep(grep, "hello")


async def test_files_that_cannot_be_read_are_counted(monkeypatch):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file in ("api.py", "secret.py"):
            (folder / file).write_text("hello\n")
        (folder / "secret.py").chmod(0)
        if os.getuid() == 0:  # root reads every file
            program = folder / "rg"
            program.write_text(
                "#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups"
                f' {shlex.quote(find_ripgrep())} "$@"\n'
            )
            program.chmod(0o755)
            monkeypatch.setattr("ouro.tools.grep_search.find_ripgrep", lambda: str(program))
        text = await run_grep(Grep(Workspace(folder)), "hello", type="py")
    assert text == "api.py\n1:hello\n[Left out: 1 file that cannot be read.]"


async def test_files_denied_by_a_read_rule_are_left_out(root):
    permissions = Permissions(Workspace(root), "auto", deny=["read(docs/**)"], ask=["read(*.ts)"])
    searching = Grep(permissions.workspace, permissions.restricts_reading)
    text = await run_grep(searching, "hello", mode="files")
    assert "src/deep/util.py" in text
    assert "docs/notes.md" not in text
    assert "app.ts" not in text
    assert text.endswith(" files that a rule of the user keeps from being read.]")


async def test_glob_with_a_folder_searches_only_that_folder(tmp_path):
    places = (
        "d/a.py",
        "d1/a.py",
        "d1/in/a.py",
        "d1x/a.py",
        "d10/a.py",
        "e1/a.py",
        "d1/d1/out/a.py",
    )
    for place in (*places, "d-.1/a.py", "a.py", "d1/a.md"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("needle\n")
    (tmp_path / ".gitignore").write_text("out/\n/d10/\n")

    def found(glob: str) -> tuple[list[str], int]:
        """The files with matches, and how many are searched."""
        args = GrepArgs("needle", glob=glob)
        search = GrepSearch(args, Workspace(tmp_path), lambda _path: False, set())
        hits = [hit.path for hit in search.files()]
        with search._listing() as listing:
            return hits, listing.stdout.read().count(b"\0")

    assert found("d1/**/*.py") == (["d1/a.py", "d1/in/a.py"], 2)
    assert found("/d1/in/*.py") == (["d1/in/a.py"], 1)
    assert found("d/*.py") == (["d/a.py"], 1)
    assert found("d-.1/**") == (["d-.1/a.py"], 1)
    assert found("d10/**/*.py") == ([], 0)  # ignored
    assert found("{d,e1}/*.py") == (["d/a.py", "e1/a.py"], 7)


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """The options of each ripgrep that a search starts."""
    commands: list[list[str]] = []

    @contextmanager
    def run(command, **options):
        commands.append([word for word in command if word in ("--files", "--sort=path", _LIMIT)])
        with _run_with_limits(command, **options) as process:
            yield process

    monkeypatch.setattr("ouro.tools.grep_search._run_with_limits", run)
    return commands


_LIMIT = "--max-filesize=50000000"


async def test_one_ripgrep_searches_files_that_are_not_too_large(grep, started):
    for arguments in ({}, {"glob": "*.py"}, {"type": "ts"}, {"path": "api.py"}):
        started.clear()
        await run_grep(grep, "hello", **arguments)
        assert started == [[]]


async def test_files_are_listed_if_the_search_has_read_more_than_one_may_have(root, grep, started):
    with (root / "big.csv").open("wb") as file:
        file.truncate(50_000_001)
    listings = [["--files"], ["--files", _LIMIT]]

    assert "over 50 MB (big.csv)" in await run_grep(grep, "hello")
    assert started == [[], *listings, [_LIMIT]]

    started.clear()  # now the tool knows
    assert "over 50 MB (big.csv)" in await run_grep(grep, "hello")
    assert started == [*listings, [_LIMIT]]

    started.clear()
    assert "over 50 MB" not in await run_grep(grep, "hello", glob="*.py")
    assert started == [[]]

    (root / "big.csv").unlink()
    for expected in ([*listings, [_LIMIT]], [[]]):
        started.clear()
        assert "over 50 MB" not in await run_grep(grep, "hello")
        assert started == expected


async def test_a_search_of_several_lines_at_once_reads_no_large_file(root, grep, started):
    text = await run_grep(grep, "os\\n.*hello", multiline=True)
    assert text.startswith("api.py")
    assert [] not in started


async def test_a_name_with_a_line_end_is_one_line(grep, root):
    (root / "a\nb.txt").write_text("needle")
    assert await run_grep(grep, "needle", mode="files") == "a\\u000ab.txt"
    assert await run_grep(grep, "needle") == "a\\u000ab.txt\n1:needle"
