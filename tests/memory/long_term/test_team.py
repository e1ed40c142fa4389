"""Notes that are promoted to the shared memory of a repository, and their expiry."""

import asyncio

import pytest
from fakes.files import git
from fakes.knowledge import Conversation, write_as_user
from fakes.waiting import PATIENCE, until
from msgspec.structs import replace

from ouro.assemble import Options, open_session
from ouro.errors import UsageError
from ouro.events import QuestionAsked, Reply
from ouro.llm import ScriptedModel
from ouro.memory.long_term import MemoryEditor, open_scopes, promote, remember_text
from ouro.memory.long_term.notes.note import Note, note_text, parse_note
from ouro.memory.long_term.store import repo_store, user_store
from ouro.memory.long_term.team import KEEP, ask_owner
from ouro.session import OpenRequest


@pytest.fixture
def shared(home, repository):
    """A memory editor on a repository with shared memory; git has a user name."""
    git(repository, "config", "user.email", "ada@example.org")
    git(repository, "config", "user.name", "Ada")
    return editor(home, repository, lambda _text: "")


def editor(home, repository, finds_secret):
    root = home / ".ouro"
    stores = [user_store(root / "memory", root / "history.git", finds_secret)]
    stores.append(repo_store(repository, root / "history.git", finds_secret, is_shared=True))
    return MemoryEditor(open_scopes(stores).opened)


def test_user_note_is_promoted_to_a_branch_without_a_checkout(shared, repository):
    (repository / "api.py").write_text("# not committed\n")
    head, status = git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")
    remember_text(shared, "user: The staging host is heron, ask before a deploy")
    found = promote(shared, "user/facts.md:1", days=90)
    [name] = git(repository, "diff", "--name-only", "HEAD", found.branch).splitlines()
    assert name == f".ouro/memory/{found.id}.md"
    note = parse_note(f"{found.id}.md", git(repository, "show", f"{found.branch}:{name}")).note
    assert (note.scope, note.session_id, note.branch, note.extra["owner"]) == (
        "repo",
        "",
        None,
        "ada@example.org",
    )
    assert note.extra["expires"] == found.expires
    assert "heron" in note.text
    assert (
        git(repository, "rev-parse", f"{found.branch}^")
        == head
        == git(repository, "rev-parse", "HEAD")
    )
    assert git(repository, "status", "--porcelain") == status
    with pytest.raises(UsageError, match=f"is on the branch {found.branch} already"):
        promote(shared, "user/facts.md:1")


def test_promoted_note_supersedes_the_branch_note(shared, repository):
    note = Note(
        id="mem_0badcafe", scope="repo", category="patterns", branch="parser", text="Retry twice"
    )
    shared.write("repo", {note.file_name: note_text(note)}, "Add")
    found = promote(shared, "mem_0badcafe", owner="Team B")
    text = git(repository, "show", f"{found.branch}:.ouro/memory/{found.id}.md")
    made = parse_note(f"{found.id}.md", text).note
    assert (made.supersedes, made.branch, made.category) == ("mem_0badcafe", None, "patterns")
    assert found.owner == "Team B"


def test_shared_note_secret_or_unshared_memory_cannot_be_promoted(shared, repository, home):
    note = Note(id="mem_0badcafe", scope="repo", text="Retry twice")
    key = Note(id="mem_5ec2e700", scope="repo", branch="b", text="It is hunter2")
    shared.write("repo", {one.file_name: note_text(one) for one in (note, key)}, "Add")
    with pytest.raises(UsageError, match="is in the shared memory already"):
        promote(shared, "mem_0badcafe")
    with pytest.raises(UsageError, match="holds a secret"):
        promote(
            editor(home, repository, lambda text: "key" if "hunter2" in text else ""),
            "mem_5ec2e700",
        )
    alone = MemoryEditor(open_scopes([repo_store(repository, home / "h", lambda _text: "")]).opened)
    with pytest.raises(UsageError, match="is not shared") as error:
        promote(alone, "mem_0badcafe")
    assert str(error.value).count("See ") == 1
    assert git(repository, "branch", "--list", "ouro-memory/*") == ""


async def test_an_expired_note_asks_its_owner_once(shared, repository, monkeypatch):
    monkeypatch.setenv("OURO_MEMORY_REPO_SHARE", "true")
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    mine = {"owner": "ada@example.org", "expires": "2026-01-01"}
    notes = [
        Note(id="mem_0000000a", scope="repo", text="Mine", extra=mine),
        Note(
            id="mem_0000000b", scope="repo", text="Fresh", extra={**mine, "expires": "2999-01-01"}
        ),
        Note(
            id="mem_0000000c",
            scope="repo",
            text="Not mine",
            extra={**mine, "owner": "bob@example.org"},
        ),
        Note(id="mem_0000000d", scope="repo", text="Mine, too", extra=mine),
    ]
    shared.write("repo", {note.file_name: note_text(note) for note in notes}, "Add")

    known = shared.scope("repo").store.repository.state_dir / "expired-asked"

    async def questions(answers):
        options = Options(repository, ready_model=ScriptedModel(["Yes."]), interactive=True)
        session = await open_session(options, OpenRequest(trust="yes"))
        asked = []
        if answers:
            async for event in session.events():
                if isinstance(event, QuestionAsked):
                    asked.append(event.question.details.splitlines()[0])
                    if len(asked) == 1:
                        known.write_text(
                            "mem_0000000e 2026-01-01\n"
                        )  # another session has asked meanwhile
                    session.answer(event.question_id, answers.pop(0))
                if not answers:
                    break
        await until(lambda: known.exists() and len(known.read_text().split()) >= 6)
        async with asyncio.timeout(
            PATIENCE
        ):  # no second question about the same note: it would wait for an answer
            await ask_owner(session.session_memory.manager, session.turn.tasks)
        await session.close()
        return asked

    assert await questions([Reply((KEEP,)), Reply()]) == ["Mine", "Mine, too"]
    kept = parse_note(
        "mem_0000000a.md", (repository / ".ouro/memory/mem_0000000a.md").read_text()
    ).note
    assert kept.extra["expires"] > "2026-01-01"
    assert known.read_text().splitlines() == [f"mem_0000000{last} 2026-01-01" for last in "ead"]


async def test_note_that_changed_while_its_owner_was_asked_keeps_the_change(home, repository):
    git(repository, "config", "user.email", "ada@example.org")
    conversation = Conversation(home / ".ouro", repository).connect()
    manager = conversation.manager
    scope = conversation.scopes["repo"]
    scope.store.is_shared = True
    note = Note(
        id="mem_0000000a",
        scope="repo",
        text="Old words",
        extra={"owner": "ada@example.org", "expires": "2026-01-01"},
    )
    await write_as_user(manager, "repo", {note.file_name: note_text(note)}, "Add")

    async def answer(_question_id, _question):
        edited = replace(note, text="New words")
        await write_as_user(manager, "repo", {note.file_name: note_text(edited)}, "Edit")
        return Reply((KEEP,))

    conversation.ask = answer
    await ask_owner(manager, conversation)
    kept = parse_note(note.file_name, scope.store.read(note.file_name)).note
    assert (kept.text, kept.extra["expires"] > "2026-01-01") == ("New words", True)
