"""X10: a shell line does not print files that a rule denies to read, even if it does not name them."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from ouro.assemble import opener
from ouro.llm import ScriptedModel, call
from ouro.messages import ToolReply
from ouro.safety import Allow, Ask, Confinement, Deny, Effect, Permissions, Workspace
from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.sandboxes import ChosenSandbox, Landlock
from ouro.session import OpenRequest
from ouro.session_options import Options

DENIED = ("read(.env)", "read(secrets/**)", "read(~/letters/*.txt)")
HIDDEN = "canary-77aa31"


@pytest.fixture
def root(repository, home) -> Path:
    (home / "letters").mkdir(parents=True)
    (repository / "src").mkdir()
    (repository / "secrets").mkdir()
    files = (
        repository / ".env",
        repository / "src/.env",
        repository / "secrets/key",
        home / "letters/one.txt",
    )
    for path in files:
        path.write_text(f"{HIDDEN}\n")
    (repository / "src/a.py").write_text("shown\n")
    (repository / ".gitignore").write_text(".env\nsecrets\n")
    return repository


def permissions_of(root: Path, mode="auto", *, hides=True, **rules) -> Permissions:
    return Permissions(Workspace(root, hides=lambda: hides), mode, **{"deny": DENIED, **rules})


@pytest.mark.parametrize("limits", ["read", "workspace"])
@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
def test_x10_programs_cannot_read_files_denied_by_a_rule(root, home, tier, limits):
    confinement = Confinement(
        root, home / "sandbox", unreadable=permissions_of(root).unreadable_files
    )
    if tier == "landlock":
        if not abi():
            pytest.skip("the kernel has no Landlock")
        (home / "sandbox").mkdir()
        confinement._chosen = ChosenSandbox(Landlock(home / "sandbox"))
    elif confinement.chosen().sandbox.tier != tier:
        pytest.skip("bubblewrap does not work here")
    lines = (
        "grep -rh . .; cat ~/letters/*",
        "cat .env src/.env secrets/key",
        (
            "mv secrets made; mv .env made; ln .env made2; ln secrets/key src/made; cat made made*"
            " made/* src/*"
        ),
        (
            "cp -r . /tmp/copy; grep -rh . /tmp/copy; tar c . ; python3 -c"
            " 'print(open(\".env\").read())'"
        ),
    )
    printed = ""
    for line in lines:
        argv = confinement.wrap(["bash", "-c", line], limits)
        printed += subprocess.run(
            argv, cwd=root, capture_output=True, text=True, errors="replace", check=False
        ).stdout
    confinement.close()
    assert "shown" in printed
    assert HIDDEN not in printed
    assert {path.name for path in root.iterdir()} >= {".env", "secrets", "src"}
    assert HIDDEN in (root / "secrets/key").read_text()
    assert not [
        path for path in root.rglob("made*") if path.is_file() and HIDDEN in path.read_text()
    ]


async def test_x10_session_hides_denied_files_and_offers_no_sandbox_exit(root, home):
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text("permissions: {deny: ['read(.env)']}\n")
    model = ScriptedModel([call("shell", command="grep -rh . src"), "Done."])
    session = await opener(Options(root, ready_model=model))(OpenRequest())
    if not session.permissions.workspace.hides():
        pytest.skip("no sandbox works here")
    async for _event in session.send("go"):
        pass
    (result,) = (
        part.text for message in session.memory.messages() for part in message.parts_of(ToolReply)
    )
    await session.close()
    assert "shown\n" in result
    assert HIDDEN not in result
    assert "outside_sandbox" not in result


@pytest.mark.parametrize(
    "line", ["git diff", "git log -p", "git show HEAD", "git status -v", "git add -p", "git grep x"]
)
def test_x10_git_asks_if_it_tracks_a_denied_file(root, line):
    assert isinstance(permissions_of(root).decide("shell", Effect.RUN, [line]), Allow)
    subprocess.run(["git", "add", "--force", "src/.env"], cwd=root, check=True)
    for mode in ("ask", "auto"):
        decision = permissions_of(root, mode).decide("shell", Effect.RUN, [line])
        assert isinstance(decision, Ask)
        assert "src/.env, which a rule denies to read" in decision.reason
    assert isinstance(
        permissions_of(root).decide("shell", Effect.RUN, [f"cd src && sh -c '{line}'"]), Ask
    )
    for names in (
        "git status -s",
        "git log --oneline -5 --stat -- src",
        "git add src && git commit -qm 'pv'",
    ):
        assert isinstance(permissions_of(root).decide("shell", Effect.RUN, [names]), Allow)
    rule = f"shell({' '.join(line.split()[:2])} *)"
    assert isinstance(permissions_of(root, allow=[rule]).decide("shell", Effect.RUN, [line]), Allow)
    assert isinstance(permissions_of(root, deny=()).decide("shell", Effect.RUN, [line]), Allow)


@pytest.mark.parametrize("line", ["grep -r x .", "egrep -rn x", "rg x", "ls | rg x src"])
def test_x10_search_asks_if_no_sandbox_hides_denied_files(root, line):
    assert isinstance(permissions_of(root, "ask").decide("shell", Effect.RUN, [line]), Allow)
    assert isinstance(
        permissions_of(root, "ask", hides=False).decide("shell", Effect.RUN, [line]), Ask
    )
    assert isinstance(
        permissions_of(root, "ask", hides=False).decide("shell", Effect.RUN, ["grep x src/a.py"]),
        Allow,
    )


def test_x10_too_many_denied_files_block_every_confined_command(root, home, monkeypatch):
    monkeypatch.setattr("ouro.safety.permissions._MAX_UNREADABLE", 2)
    confinement = Confinement(
        root, home / "sandbox", unreadable=permissions_of(root).unreadable_files
    )
    with pytest.raises(OSError, match="too many"):
        confinement.wrap(["ls"], "read")
    assert confinement.wrap(["ls"], "off") == ["ls"]


def test_x10_only_folders_that_have_changed_are_read_again(root, monkeypatch):
    permissions, read, scan = permissions_of(root), [], os.scandir
    monkeypatch.setattr("os.scandir", lambda folder: read.append(Path(folder)) or scan(folder))
    first = permissions.unreadable_files()
    assert permissions.unreadable_files() == first
    assert (
        read.count(root / "src") == 2
    )  # a folder that has just changed may change again in the same tick
    monkeypatch.setattr("ouro.safety.permissions._CHANGE_TIME_MARGIN", 0)
    permissions.unreadable_files()
    read.clear()
    assert permissions.unreadable_files() == first
    assert read == []

    monkeypatch.setattr("ouro.safety.permissions._CHANGE_TIME_MARGIN", 2_000_000_000)
    time.sleep(0.05)
    before = (root / "src").stat()
    (root / "src" / "new").mkdir()
    (root / "src" / "new" / ".env").write_text(HIDDEN)
    os.utime(root / "src", ns=(before.st_atime_ns, before.st_mtime_ns))
    (root / ".env").unlink()
    assert {*permissions.unreadable_files()} == {*first, root / "src/new/.env"} - {root / ".env"}
    child = permissions.narrow("ask", Workspace(root), deny=["read(aenv)"])
    (root / "aenv").write_text(HIDDEN)
    assert root / "aenv" in child.unreadable_files()
    assert root / "aenv" not in permissions.unreadable_files()


@pytest.mark.skipif(not abi(), reason="the kernel has no Landlock")
def test_x10_landlock_denial_names_the_affected_folders(root, home):
    (home / "sandbox").mkdir()
    confinement = Confinement(
        root, home / "sandbox", unreadable=permissions_of(root).unreadable_files
    )
    confinement._chosen = ChosenSandbox(Landlock(home / "sandbox"))
    argv = confinement.wrap(["bash", "-c", "touch src/made"], "workspace")
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)
    assert (
        f"beside a file that a rule denies to read: in {home / 'letters'}, {root}, {root / 'src'}."
        in (confinement.find_denial(done.stderr))
    )
    confinement.close()


def test_x10_only_folders_a_rule_can_match_are_scanned(root, home, monkeypatch):
    for number in range(400):
        (home / "elsewhere" / str(number)).mkdir(parents=True)
    monkeypatch.setattr("ouro.safety.permissions._MAX_NAMES", 300)  # more than the repository has
    hidden = set(permissions_of(root).unreadable_files())
    assert hidden >= {root / ".env", root / "src/.env", root / "secrets", home / "letters/one.txt"}
    with pytest.raises(OSError, match="too many"):
        permissions_of(root, deny=["read(/**/one.txt)"]).unreadable_files()


def test_x10_project_rules_apply_in_a_subagent_worktree(root, tmp_path):
    worktree = tmp_path / "worktree"
    (worktree / "secrets").mkdir(parents=True)
    (worktree / ".env").write_text(HIDDEN)
    child = permissions_of(root).narrow("auto", Workspace(worktree))
    for path in ("secrets/x", f"{root}/secrets/key", f"{root}/.env"):
        assert isinstance(child.decide("read", Effect.READ, [path]), Deny)
        assert isinstance(child.decide("shell", Effect.RUN, [f"cat {path}"]), Deny)
    hidden = {path.parent / path.name for path in child.unreadable_files()}
    assert hidden >= {
        worktree / "secrets",
        worktree / ".env",
        root / "secrets",
        root / ".env",
        root / "src/.env",
    }
