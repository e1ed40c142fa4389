"""X10: permission for a folder does not cover key files in it; no path blocks ouro or ends a turn."""

import cProfile
import time

import pytest

from ouro.errors import ToolError
from ouro.safety import Allow, Ask, Deny, Effect, Permissions, Workspace
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob, name_pattern
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs
from ouro.tools.read import Read
from ouro.tools.tool import parse_arguments


@pytest.fixture
def keys(home, tmp_path):
    (tmp_path / "app").mkdir()
    for name in (".aws/credentials", ".ouro/models.yaml", ".ouro/mark.key", "notes/a.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("api_key: sk-1234567890\n")
    return Workspace(tmp_path / "app")


async def test_x10_search_of_the_home_leaves_out_key_files(keys):
    permissions = Permissions(keys, "auto")
    assert permissions.decide("grep", Effect.READ, ["~"]) == Allow()
    permissions.admit(Effect.READ, ["~"])
    found = await Grep(keys).run(GrepArgs("api_key", path="~"), None)
    assert "notes/a.txt" in found.text
    assert "credentials" not in found.text
    assert "models.yaml" not in found.text
    assert "mark.key" not in found.text
    listed = await Glob(keys).run(Glob.Args("**", path="~", ignored=True), None)
    assert "credentials" not in listed.text


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
def test_x10_read_rule_for_a_folder_does_not_cover_key_files(keys, home, mode):
    permissions = Permissions(keys, mode, allow=["read(~/**)"])
    assert permissions.decide("read", Effect.READ, ["~/notes/a.txt"]) == Allow()
    assert isinstance(permissions.decide("read", Effect.READ, ["~/.aws/credentials"]), Ask)
    named = Permissions(keys, mode, allow=["read(~/.aws/**)"])
    assert named.decide("read", Effect.READ, ["~/.aws/credentials"]) == Allow()
    named.admit(Effect.READ, ["~"])
    with pytest.raises(ToolError, match="outside the workspace"):
        keys.open("~/.aws/credentials")


@pytest.mark.parametrize(
    "path",
    [
        "~/.ouro/mcp.json",
        "~/.ouro/mcp/tokens/a.json",
        "~/.ouro/sessions.key",
        "~/.ouro/sessions.git/HEAD",
        "~/.ouro/checkpoints/app/HEAD",
        "~/.ouro/cache/index.db-wal",
        "~/.claude/.credentials.json",
        "~/.codex/auth.json",
        "~/.pgpass",
    ],
)
def test_x10_tokens_and_copies_of_files_are_asked_about(keys, path):
    permissions = Permissions(keys, "auto", allow=["read(~/**)"])
    assert isinstance(permissions.decide("read", Effect.READ, [path]), Ask)
    assert isinstance(permissions.decide("shell", Effect.RUN, [f"cat {path}"]), Ask)


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
@pytest.mark.parametrize("path", ["~/.aws/credentials", "~/.ouro/models.yaml", "~/.ouro/mark.key"])
def test_x10_write_rule_for_a_folder_does_not_cover_key_files(keys, mode, tool, path):
    permissions = Permissions(keys, mode, allow=["write(~/**)", f"{tool}(~/**)"])
    assert permissions.decide(tool, Effect.WRITE, ["~/notes/a.txt"]) == Allow()
    assert isinstance(permissions.decide(tool, Effect.WRITE, [path]), Ask)
    permissions.admit(Effect.WRITE, ["~"])
    with pytest.raises(ToolError, match="outside the workspace"), keys.place(path, "write"):
        pass


@pytest.mark.parametrize(
    "line",
    [
        "grep -rn api_key {}",
        "rg api_key {}",
        "cp -r {} .",
        "tar cf x.tar {}",
        "cat {}/*",
        "cd {} && rg api_key",
        "cd {}; grep -rn api_key",
        "git grep --no-index api_key {}",
        "git diff {} src",
        "cd {} && git grep api_key",
        "git -C {} grep --no-index api_key",
        "ag api_key {}",
        "mv {} x",
        "mv -t x {}",
    ],
)
@pytest.mark.parametrize("folder", ["~", "~/.ouro"])
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_x10_a_shell_line_that_reads_all_of_a_folder_with_keys_is_asked(keys, mode, folder, line):
    permissions = Permissions(keys, mode, allow=["read(~/**)"])
    assert isinstance(permissions.decide("shell", Effect.RUN, [line.format(folder)]), Ask)
    harmless = permissions.decide("shell", Effect.RUN, [line.format("~/notes")])
    assert isinstance(harmless, Allow) or line.startswith(("cp", "tar", "ag", "mv"))


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 200, False),
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 200 + "b", True),
        ("**/*a*/**/*a*/**/*a*/**/b", "a/" * 100 + "c", False),
        ("**/*a*/**/*a*/**/*a*/**/b", "a/" * 100 + "b", True),
        ("**/**/**/**/**/**/x", "a/b/x", True),
        ("a/*/*/*/*/*/b", "a/1/2/3/4/5/b", True),
        ("a/*/*/*/*/*/b", "a/1/2/3/4/b", False),
        ("*.[a-c]*?*?*?*?*y", "x.b1234y", True),
    ],
)
def test_x10_a_pattern_of_many_stars_takes_linear_time(pattern, path, fits):
    start = time.process_time()
    assert name_pattern(pattern)(path) is fits
    assert time.process_time() - start < 0.5


@pytest.mark.usefixtures("cpu_limit")
def test_x10_a_rule_of_many_stars_is_matched_in_linear_time(keys):
    """A line of 9,000 characters against `*rm*-rf*/*x` took more than 100 s."""
    policy = Permissions(keys, "auto", deny=["shell(*rm*-rf*/*x)", "write(*a*a*a*a*b)"])

    assert isinstance(policy.decide("shell", Effect.RUN, ["echo " + "rm -rf / " * 1000]), Allow)
    assert isinstance(policy.decide("write", Effect.WRITE, ["a" * 250]), Allow)
    assert isinstance(policy.decide("shell", Effect.RUN, ["rm -rf /x /x"]), Deny)
    assert isinstance(policy.decide("write", Effect.WRITE, ["aXaaXab"]), Deny)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("echo", " rm -rf ./x"),
        ("cat", " a.txt -n"),
        ("grep -e x", " -l ./x"),
        ("timeout 5", " timeout 5"),
    ],
)
def test_x10_a_line_of_many_words_is_judged_in_linear_time(keys, program, words):
    """The options of a command were read once for each of its words: 9,000 characters took 6 s."""
    policy, found = Permissions(keys, "ask"), []
    for count in (1, 100, 300):  # the first run loads lazy imports
        profile = cProfile.Profile()
        profile.runcall(policy.decide, "shell", Effect.RUN, [program + words * count])
        found.append(sum(entry.callcount for entry in profile.getstats()))
    assert found[2] < 4 * found[1]


@pytest.mark.parametrize("tool", [Grep, Glob, Read])
def test_x10_a_nul_in_a_path_is_an_error_of_the_call(keys, tool):
    arguments = {"path": "a\0b"} | ({} if tool is Read else {"pattern": "x"})
    made = tool(keys) if tool is not Read else Read(FilesSeen(keys))
    with pytest.raises(ToolError, match="NUL"):
        parse_arguments(made, arguments)
