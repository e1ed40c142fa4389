"""M8: memory refuses secrets: in texts, names, commit subjects and trailers."""

import asyncio
import subprocess

import pytest
from fakes.tool_benches import call

from ouro.errors import SecretInMemory, ToolError
from ouro.frontends.tui.screens.memory_pages import proposal_page
from ouro.memory.long_term import FileEdit, GitMemoryStore
from ouro.memory.long_term.git.values import NO_TURN, SkippedFile
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.trust.approval import decide
from ouro.memory.long_term.trust.proposals import changed_rows, question_about
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import user
from ouro.safety import GuardedMemory, SecretMask, Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Write
from ouro.tools.files_seen import FilesSeen

OWN = "correct-horse-battery-staple"
SHAPED = "AKIAQYLPMN5HFIQR7BBB"


@pytest.fixture(scope="module")
def mask():
    return SecretMask([OWN], patience=0.0)


@pytest.fixture
def store(home, mask) -> GitMemoryStore:
    folder, git_dir = home / ".ouro" / "memory", home / ".ouro" / "history.git" / "user.git"
    made = GitMemoryStore(folder, "user", git_dir, finds_secret=mask.kind_of_secret)
    made.save_and_commit({"facts.md": "- one\n"}, "Learn")
    return made


def every_byte(store: GitMemoryStore) -> bytes:
    """All files, and all objects of the history, unpacked."""
    listed = ["cat-file", "--batch-all-objects", "--batch"]
    objects = subprocess.run(
        ["git", "-C", store.folder, *listed], capture_output=True, check=True
    ).stdout
    home = store.folder.parent
    return objects + b"".join(each.read_bytes() for each in home.rglob("*") if each.is_file())


@pytest.mark.parametrize("secret", [OWN, SHAPED])
@pytest.mark.parametrize("place", ["text", "name", "subject", "trailer", "note"])
def test_m8_change_with_a_secret_is_not_written(store, secret, place):
    before = store.get_current_head()
    changes = {
        "text": {"facts.md": f"- one\n- the id is {secret}\n", "preferences.md": "- tabs\n"},
        "name": {f"{secret}.md": "- x\n"},
        "note": {"mem_1.md": f"---\nid: mem_1\n---\n{secret}"},
    }.get(place, {"facts.md": "- two\n"})
    subject = f"Learn {secret}" if place == "subject" else "Learn"
    trailers = {"Ouro-Session": secret if place == "trailer" else "s1"}

    with pytest.raises(SecretInMemory) as refused:
        store.save_and_commit(changes, subject, trailers)

    assert secret not in str(refused.value)
    assert (store.get_current_head(), store.load_all().core) == (before, {"facts": "- one\n"})
    assert secret.encode() not in every_byte(store)


@pytest.mark.parametrize("secret", [OWN, SHAPED])
def test_m8_secret_that_another_program_wrote_is_shown_nowhere(store, secret):
    (store.folder / "facts.md").write_text(f"- one\n- log in with {secret}\n- two\n")
    scope = ScopeMemory(store)
    scope.open()

    [event] = scope.foreign_events()
    [proposal] = scope.proposals()
    shown = (
        f"{event}\n{question_about(proposal)}\n{changed_rows(proposal)}\n{proposal_page(proposal)}"
    )

    assert secret not in shown
    assert "(a secret: " in shown
    assert "two" in shown
    assert "holds a secret" in proposal.reason
    with pytest.raises(SecretInMemory):
        scope.accept(proposal, NO_TURN)
    scope.reject(proposal, NO_TURN)
    assert (store.folder / "facts.md").read_text() == "- one\n"


@pytest.mark.parametrize("secret", [OWN, SHAPED])
def test_m8_secret_that_the_user_wrote_between_turns_is_not_sent(store, secret):
    scope = ScopeMemory(store)
    scope.open()
    (store.folder / "facts.md").write_text(f"- one\n- log in with {secret}\n")

    events = scope.refresh(agent_was_idle=True)

    assert secret not in f"{events}"
    assert secret not in scope.texts["facts"]


def test_m8_file_with_a_secret_is_not_committed_and_is_reported(store):
    (store.folder / "preferences.md").write_text(f"- log in with {SHAPED}\n")
    (store.folder / "mem_1.md").write_text("fine\n")

    commit = store.commit_changes("Take in what is there")

    assert store.log(1)[0].paths == ("mem_1.md",)
    assert store.refused == (
        SkippedFile("preferences.md", "holds a secret (aws-id): not committed"),
    )
    assert commit
    objects = ["git", "-C", store.folder, "cat-file", "--batch-all-objects", "--batch"]
    assert SHAPED.encode() not in subprocess.run(objects, capture_output=True, check=True).stdout


def test_m8_file_tool_refuses_a_secret_in_memory_only(store, mask, tmp_path):
    folder = GuardedMemory(store.folder, store.repository.state_dir)
    workspace = Workspace(tmp_path, memory=[folder])
    seen = FilesSeen(workspace, mask.kind_of_secret)
    patch = f"*** Begin Patch\n*** Add File: {store.folder}/mem_1.md\n+{SHAPED}\n*** End Patch"

    for tool, arguments in (
        (Write(seen), {"path": str(store.folder / "preferences.md"), "content": f"- {OWN}\n"}),
        (Write(seen), {"path": str(store.folder / f"{SHAPED}.md"), "content": "x"}),
        (ApplyPatch(seen), {"input": patch}),
    ):
        with pytest.raises(ToolError, match="holds a secret"):
            asyncio.run(call(tool, **arguments))
    asyncio.run(call(Write(seen), path="app.env", content=OWN))

    assert (tmp_path / "app.env").read_text() == OWN
    assert sorted(each.name for each in store.folder.glob("*.md")) == ["facts.md"]


@pytest.mark.parametrize(
    "edit", [FileEdit("facts.md", None, f"- {OWN}\n"), FileEdit(f"{SHAPED}.md", None, "- one\n")]
)
def test_m8_secret_in_a_memory_file_is_refused_despite_approved_call(tmp_path, mask, edit):
    provenance = Provenance([user("remember it")])
    assert decide(edit, provenance, mask.kind_of_secret, is_approved=True).state == "refused"
