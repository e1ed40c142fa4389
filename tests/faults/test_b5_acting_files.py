"""B5: a confined command leaves nothing that other programs obey, at any depth, in both tiers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.tool_benches import ShellBench

from ouro.safety import Permissions, Workspace
from ouro.safety.rules import Ask, Effect
from ouro.safety.sandbox import confinement as confinement_module
from ouro.safety.sandbox.confinement import Confinement
from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.reverted_files import ActingFiles, NotMovedError, is_plain_repository
from ouro.safety.sandbox.sandboxes import Bubblewrap, ChosenSandbox, Landlock, _find_bwrap
from ouro.settings import SandboxSettings
from ouro.tools.tool import ToolContext

NAMES = [
    ".git/config", ".git/hooks/pre-commit", ".gitmodules", ".gitconfig", ".vscode/tasks.json", ".idea/workspace.xml",
    ".envrc", ".husky/pre-commit", ".mcp.json", ".claude/settings.json", ".codex/config.toml", ".cursor/mcp.json",
    ".gemini/settings.json", ".opencode/opencode.json", ".github/workflows/ci.yml", ".devcontainer/devcontainer.json",
    ".devcontainer.json", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs",
    ".zed/tasks.json", "mise.toml", ".mise.toml", ".mise/config.toml", ".config/mise/config.toml", ".exrc", ".nvimrc",
    ".gdbinit", ".lldbinit", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".inputrc", ".ripgreprc",
    "x.code-workspace", "sitecustomize.py", "usercustomize.py", ".ouro/config.yaml", "lefthook.yml",
    ".circleci/config.yml", ".windsurf/mcp.json", ".VSCode/tasks.json",
]  # fmt: skip
DEPTHS = ["", "packages/app/"]
TIERS = ["bubblewrap", "landlock"]


@pytest.fixture(params=TIERS)
def confine(request, tmp_path, monkeypatch):
    """Makes a confinement of a tier for a workspace."""
    state = tmp_path / "state"
    state.mkdir()
    program = _find_bwrap()
    if request.param == "bubblewrap":
        if program is None:
            pytest.skip("bwrap is not installed")
        sandbox = Bubblewrap(program, state)
    elif abi():
        sandbox = Landlock(state)
    else:
        pytest.skip("the kernel has no Landlock")
    monkeypatch.setattr(confinement_module, "_choose_once", lambda _dir: ChosenSandbox(sandbox))
    return lambda root: Confinement(root, state)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    (folder / "packages" / "app").mkdir(parents=True)
    return folder


def run(confinement, root, script, limits="workspace", call="1"):
    """Run Python in the sandbox, or a line of sh that begins with `$ `; then move out what it made."""
    is_shell = script.startswith("$ ")
    program = ["sh", "-c", script[2:]] if is_shell else [sys.executable, "-I", "-S", "-c", script]
    argv = confinement.wrap(program, limits, call)
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
    }
    subprocess.run(argv, cwd=root, env=environment, check=False, capture_output=True, timeout=60)
    return confinement.revert(call)


def write(*names: str, text: str = "hostile") -> str:
    """Code that writes files, without pathlib, whose import takes as long as the rest."""
    lines = ["import os"]
    for name in names:
        folder = os.path.dirname(name) or "."  # noqa: PTH120
        lines.append(f"os.makedirs({folder!r}, exist_ok=True)")
        lines.append(f"with open({name!r}, 'w') as file: file.write({text!r})")
    return "\n".join(lines)


def files_in(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("depth", DEPTHS)
def test_b5_new_files_that_programs_obey_are_moved_out(confine, root, depth):
    confinement = confine(root)
    for number, name in enumerate(NAMES):
        # Two hundred times: Python would start ten times as long as sh.
        folder = os.path.dirname(depth + name) or "."  # noqa: PTH120
        line = f"$ mkdir -p {folder}; printf hostile > {depth}{name}; printf hostile > {depth}ordinary.txt"
        taken = run(confinement, root, line, call=str(number))
        assert not (root / depth / name).exists(), name
        assert len(taken) == 1, name
        assert taken[0].moved.exists()
    assert files_in(root) == {f"{depth}ordinary.txt": b"hostile"}


def test_b5_a_file_with_a_long_name_is_moved_out(confine, root):
    name = f"{'a' * 236}.code-workspace"
    run(confine(root), root, write(name, ".envrc", "notes.txt"))
    assert files_in(root).keys() == {"notes.txt"}


def test_b5_a_file_that_cannot_be_moved_keeps_no_other_in_the_workspace(root, tmp_path):
    acting = ActingFiles([root], tmp_path / "reverted")
    acting.accept(copies=False)
    store = tmp_path / "reverted"
    (root / ".envrc").write_text("hostile")
    (root / ".mcp.json").write_text("hostile")
    immovable = next(iter(acting._find_acting()))
    original = acting._move_out

    def move_out(path, *, was_changed):
        if path == immovable:
            raise OSError(f"{path} cannot be moved")
        return original(path, was_changed=was_changed)

    acting._move_out = move_out
    with pytest.raises(NotMovedError, match=re.escape(immovable)) as caught:
        acting.revert()
    assert list(files_in(root)) == [Path(immovable).name]
    assert [item.path.name for item in caught.value.reverted] != [Path(immovable).name]
    acting._move_out = original
    acting.accept(copies=False)  # before the next command: what stayed is still not accepted
    assert [item.path for item in acting.revert()] == [Path(immovable)]
    assert len(list(store.iterdir())) == 2


@pytest.mark.parametrize("depth", DEPTHS)
def test_b5_existing_files_that_programs_obey_stay_as_they_were(confine, root, depth):
    for name in NAMES:
        (root / depth / name).parent.mkdir(parents=True, exist_ok=True)
        (root / depth / name).write_text("mine")
    before = files_in(root)
    run(confine(root), root, write(*(depth + name for name in NAMES)))
    assert files_in(root) == before


@pytest.mark.parametrize("depth", DEPTHS)
def test_b5_a_file_in_an_empty_folder_that_programs_obey_is_moved_out(confine, root, depth):
    (root / depth / ".claude").mkdir(parents=True)
    run(confine(root), root, write(f"{depth}.claude/settings.json"))
    assert files_in(root) == {}


def test_b5_folder_with_such_a_file_can_be_made_elsewhere_and_is_found(confine, root):
    script = write("tmp/x/.vscode/tasks.json") + "\nos.rename('tmp/x', 'packages/app/moved')"
    taken = run(confine(root), root, script)
    assert [item.path for item in taken] == [root / "packages/app/moved/.vscode"]


def test_b5_link_with_such_a_name_is_moved_out(confine, root):
    (root / "evil").mkdir()
    taken = run(confine(root), root, "import os; os.symlink('../../evil', 'packages/app/.vscode')")
    assert [item.path for item in taken] == [root / "packages/app/.vscode"]


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = ./evil\n",
        "[core]\n\thooksPath = ../evil\n",
        '[filter "x"]\n\tclean = evil\n',
        '[remote "origin"]\n\turl = ext::sh -c evil\n',
        "[include]\n\tpath = ../evil\n",
        "[core]\n\tsshCommand = evil\n",
        "[alias]\n\tst = !evil\n",
        "[core]\n\tbare = \\\nfalse\n\tfsmonitor = evil\n",
    ],
)
def test_b5_new_repository_that_runs_programs_is_moved_out(confine, root, config):
    script = f"import subprocess; subprocess.run(['git', 'init', '-q', 'packages/app/new'])\n{write('packages/app/new/.git/config', text=config)}"
    taken = run(confine(root), root, script)
    assert [item.path for item in taken] == [root / "packages/app/new/.git"]


def test_b5_new_repository_as_git_makes_it_stays(confine, root, tmp_path):
    source = tmp_path / "project" / "source"
    subprocess.run(["git", "init", "-q", source], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(
        ["git", "-C", source, *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True
    )
    confinement = confine(root)
    line = "import subprocess; subprocess.run(['git', 'clone', '-q', 'source', 'copy']); subprocess.run(['git', 'init', '-q', 'new'])"
    assert run(confinement, root, line) == []
    assert (root / "copy/.git/HEAD").exists()
    assert is_plain_repository(root / "new/.git")


def test_b5_hook_that_a_git_command_makes_is_moved_out(confine, root):
    subprocess.run(["git", "init", "-q", "--template=", root], check=True)
    taken = run(
        confine(root), root, write(".git/hooks/pre-commit", ".git/refs/heads/x"), "repository"
    )
    assert [item.path for item in taken] == [root / ".git/hooks/pre-commit"]
    assert (root / ".git/refs/heads/x").exists()


def test_b5_a_moved_folder_of_another_agent_stays_as_it_was(confine, root, request, monkeypatch):
    if "landlock" in request.node.name:
        pytest.skip("Landlock cannot take a folder out of a writable one")
    (root / "agents").mkdir()
    (root / "agents/hooks.json").write_text("mine")
    monkeypatch.setenv("CODEX_HOME", str(root / "agents"))
    run(confine(root), root, write("new.txt", "agents/hooks.json"))
    assert files_in(root) == {"agents/hooks.json": b"mine", "new.txt": b"hostile"}


def test_b5_what_the_user_makes_between_commands_stays(confine, root):
    confinement = confine(root)
    assert run(confinement, root, write("a.txt"), call="1") == []
    (root / ".vscode").mkdir()
    (root / ".vscode/tasks.json").write_text("mine")
    assert run(confinement, root, write("b.txt"), call="2") == []
    assert (root / ".vscode/tasks.json").read_text() == "mine"


def test_b5_what_the_user_allows_is_restore_and_stays(confine, root):
    confinement = confine(root)
    taken = run(confinement, root, write(".envrc"), call="1")
    assert confinement.restore(taken) == []
    assert run(confinement, root, write("b.txt"), call="2") == []
    assert (root / ".envrc").read_text() == "hostile"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("mode", ["edit", "auto"])
def test_b5_file_tools_and_shell_lines_ask_about_each_name(root, depth, mode):
    permissions = Permissions(Workspace(root), mode)
    for name in NAMES:
        file = permissions.decide("write", Effect.WRITE, [depth + name])
        line = permissions.decide("shell", Effect.RUN, [f"echo x > {depth}{name}"])
        assert isinstance(file, Ask), name
        assert isinstance(line, Ask), name


def test_b5_code_of_the_project_is_written_without_a_question(root):
    permissions = Permissions(Workspace(root), "edit")
    for name in (
        "conftest.py",
        "Makefile",
        "package.json",
        ".github/CODEOWNERS",
        ".gitignore",
        ".env",
    ):
        assert not isinstance(permissions.decide("write", Effect.WRITE, [name]), Ask), name


def test_b5_commands_on_memory_and_without_a_sandbox_move_nothing(confine, root, tmp_path):
    (root / ".vscode").mkdir()
    confinement = confine(root)
    run(confinement, root, "pass", "memory")
    run(confinement, root, "pass", "read")
    assert (root / ".vscode").is_dir()
    unconfined = Confinement(root, tmp_path / "state", SandboxSettings(enabled=False))
    run(unconfined, root, write(".envrc"))
    assert (root / ".vscode").is_dir()
    assert (root / ".envrc").exists()


async def test_b5_shell_asks_and_restores_only_what_the_user_allows(tmp_path):
    bench = ShellBench(tmp_path)
    bench.shell.confinement = Confinement(bench.root, tmp_path / "state")
    if not bench.shell.confinement.is_on:
        pytest.skip("no sandbox works here")
    answers = iter([("Leave it out",), ("Restore it",), ()])

    async def ask(_question):
        return next(answers)

    bench.context = ToolContext(bench.reported.append, ask, "workspace", "call_1")
    made = []
    for _ in range(3):
        result = await bench.run("mkdir -p a/b && echo x > a/b/.envrc && echo done")
        made.append((bench.root / "a/b/.envrc").exists())
        assert "a/b/.envrc" in result.text
        (bench.root / "a/b/.envrc").unlink(missing_ok=True)
    assert made == [False, True, False]
