"""X16: fifty places where programs keep keys, counted: a confined command reads none of them, and the
file tools ask.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ouro.safety import Ask, Confinement, Effect, Permissions, Workspace
from ouro.safety.sandbox import confinement as confinement_module
from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.sandboxes import (
    Bubblewrap,
    ChosenSandbox,
    Landlock,
    _find_bwrap,
    _self_test,
)
from ouro.tools.glob import Glob, GlobArgs
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs

PLACES = (
    # package managers and build tools
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pip/pip.conf",
    ".config/pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".gem/credentials",
    ".bundle/config",
    ".cargo/credentials.toml",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    # git, clouds, infrastructure
    ".config/git/credentials",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".netrc",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".kube/config",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".oci/config",
    ".s3cfg",
    ".boto",
    ".my.cnf",
    ".pgpass",
    # managers of secrets
    ".config/op/config",
    ".config/sops/age/keys.txt",
    ".gnupg/private-keys-v1.d/a.key",
    ".password-store/site.gpg",
    ".local/share/keyrings/login.keyring",
    # models and other agents
    ".cache/huggingface/token",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot/apps.json",
    # browsers and wallets
    ".mozilla/firefox/abc.default/logins.json",
    ".config/google-chrome/Default/Login Data",
    ".config/BraveSoftware/Brave-Browser/Default/Cookies",
    ".bitcoin/wallet.dat",
    ".config/solana/id.json",
    # what was typed
    ".bash_history",
    ".zsh_history",
    ".python_history",
)
LEAST = 48
SECRET = "s3cr3t-of-the-user"
STEAL = f"""
import pathlib
for path in pathlib.Path({{home!r}}).rglob("*"):
    try:
        if {SECRET!r} in path.read_text():
            print("READ", path)
        elif path.name == "notes.txt":
            print("NOTES")
    except OSError:
        pass
"""


@pytest.fixture
def root(home, tmp_path) -> Path:
    """A workspace; the home folder has a secret in each place, and notes that are none."""
    for name in PLACES:
        place = home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{SECRET}\n")
    (home / "notes.txt").write_text("tea\n")
    folder = tmp_path / "app"
    folder.mkdir()
    return folder


@pytest.fixture(params=["bubblewrap", "landlock"])
def tier(request, tmp_path, monkeypatch) -> str:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    if request.param == "landlock":
        if not abi():
            pytest.skip("the kernel has no Landlock")
        sandbox = Landlock(state)
    else:
        if not (program := _find_bwrap()):
            pytest.skip("bwrap is not installed")
        sandbox = Bubblewrap(program, state)
    if problem := _self_test(sandbox, state):
        pytest.skip(problem)
    monkeypatch.setattr(confinement_module, "_choose_once", lambda _dir: ChosenSandbox(sandbox))
    return sandbox.tier


def test_x16_there_are_fifty_places():
    assert len(set(PLACES)) == 50


def test_x16_a_confined_program_reads_none_of_the_places(root, home, tier, tmp_path):
    script = root / "steal.py"
    script.write_text(STEAL.format(home=str(home)))
    confinement = Confinement(root, tmp_path / "state")
    try:
        argv = confinement.wrap(
            [os.path.realpath(sys.executable), "-I", "-S", str(script)], "workspace"
        )
        done = subprocess.run(
            argv, cwd=root, env=dict(os.environ), capture_output=True, text=True, check=False
        )
    finally:
        confinement.close()

    read = [line for line in done.stdout.splitlines() if line.startswith("READ")]
    assert "NOTES" in done.stdout, done.stderr  # the home folder as such can be read
    assert len(PLACES) - len(read) >= LEAST, read
    assert read == []


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
def test_x16_file_tools_ask_about_the_places(root, home, mode):
    permissions = Permissions(Workspace(root), mode, allow=["read(~/**)", "write(~/**)"])
    kinds = (("read", Effect.READ), ("write", Effect.WRITE), ("edit", Effect.WRITE))

    open_places = [
        (tool, name)
        for name in PLACES
        for tool, effect in kinds
        if not isinstance(permissions.decide(tool, effect, [f"~/{name}"]), Ask)
    ]
    lines = [
        name
        for name in PLACES
        if not isinstance(permissions.decide("shell", Effect.RUN, [f"cat '{home}/{name}'"]), Ask)
    ]

    assert open_places == []
    assert lines == []


async def test_x16_searches_of_the_home_leave_the_places_out(root, home):
    workspace = Workspace(root)
    workspace.grant(home, "read")

    found = await Grep(workspace).run(GrepArgs(SECRET, str(home)), None)
    listed = await Glob(workspace).run(GlobArgs("**", str(home), ignored=True), None)

    assert [name for name in PLACES if name in found.text] == []
    assert [name for name in PLACES if name in listed.text] == []
    assert "notes.txt" in listed.text
