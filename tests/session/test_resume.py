"""A resumed session: what it shows before the first model call, and the ways to continue."""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest
from fakes.knowledge import write_as_user
from msgspec.structs import replace

from ouro.assemble import Options, open_session
from ouro.errors import SessionError
from ouro.events import Notice
from ouro.frontends.session_format import card_lines, now
from ouro.llm import ModelSpec, Prices, ScriptedModel, ScriptedReply, call
from ouro.memory.long_term import remember_text
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.messages import Context, Usage
from ouro.session import OpenRequest
from ouro.session.resume import repository_changes

pytestmark = pytest.mark.usefixtures("no_titles")

LONG = "a word and another, " * 1_000


async def opened(
    repository, *script, resume="", name="anthropic/claude-test", on_this_machine=False, **request
):
    prices = Prices(2, 10, 0.2, 2.5)
    spec = ModelSpec(name, window=200_000, prices=prices, on_this_machine=on_this_machine)
    model = ScriptedModel(script, spec=spec)
    asked = OpenRequest(resume, trust="yes", **request)
    return (
        await open_session(
            Options(repository, {"permissions.mode": "auto"}, ready_model=model), asked
        ),
        model,
    )


async def closed_session(repository, *turns, answer="So it is."):
    """A closed session with these messages."""
    answers = [
        ScriptedReply(answer, usage=Usage(input=6_000 * number))
        for number in range(1, len(turns) + 1)
    ]
    session, _ = await opened(repository, *answers)
    for text in turns:
        assert [event async for event in session.send(text)]
    await session.close()
    return session.id


async def card_of(repository, **options):
    session, _ = await opened(repository, resume="latest", **options)
    card = await session.resumed.card()
    await session.close()
    return card


def git(repository, *arguments, minutes=1):
    """Run git some minutes in the future: git dates have whole seconds, and the test takes less
    than one.
    """
    environment = {**os.environ, "GIT_COMMITTER_DATE": f"{int(time.time()) + 60 * minutes} +0000"}
    subprocess.run(["git", *arguments], cwd=repository, check=True, env=environment)


def commit(repository, subject, **when):
    (repository / "api.py").write_text(f"# {subject}\n")
    git(repository, "commit", "-qam", subject, **when)


async def test_new_session_has_no_resume_card(repository):
    session, _ = await opened(repository)
    assert session.resumed is None
    await session.close()


async def test_card_shows_size_price_and_cache_state(repository):
    session_id = await closed_session(repository, LONG, LONG)
    card = await card_of(repository)
    assert (card.info.id, card.info.messages, card.info.size > 40_000) == (session_id, 4, True)
    assert card.cache == "warm"
    assert card.price == pytest.approx(card.tokens * 0.2 / 1e6)
    assert card.price_cold == pytest.approx(card.tokens * 2.5 / 1e6)
    assert (card.folder, card.todos, card.in_the_middle, card.is_long) == ("", (), False, True)


async def test_cache_is_cold_for_another_model_and_a_guess_for_openai(repository):
    await closed_session(repository, "hello")
    assert (await card_of(repository, name="anthropic/claude-other")).cache == "cold"
    session, _ = await opened(repository, "Yes.", name="openai/test")
    assert [event async for event in session.send("hello")]
    await session.close()
    assert (await card_of(repository, name="openai/test")).cache == "probably warm"


async def test_the_cache_of_a_server_on_this_machine_is_not_guessed(repository):
    session, _ = await opened(repository, "Yes.", name="openai/test")
    assert [event async for event in session.send("hello")]
    await session.close()
    card = await card_of(repository, name="openai/test", on_this_machine=True)
    assert card.cache == "unknown"


async def test_short_session_offers_no_tail(repository):
    await closed_session(repository, "hello")
    card = await card_of(repository)
    assert (card.is_long, card.tail) == (False, None)


async def test_card_shows_repository_changes_since(repository):
    await closed_session(repository, "hello")
    commit(repository, "second")
    commit(repository, "third")
    git(repository, "checkout", "-qb", "elsewhere")
    (repository / "new.py").write_text("")
    news = (await card_of(repository)).repository
    assert (news.branch, news.branch_then, news.commits, news.changed) == (
        "elsewhere",
        "main",
        2,
        1,
    )
    assert [re.sub(r"^\w+ ", "", subject) for subject in news.subjects] == ["third", "second"]


async def test_commits_from_before_are_not_counted(repository):
    commit(repository, "before", minutes=-1)
    await closed_session(repository, "hello")
    news = (await card_of(repository)).repository
    assert (news.commits, news.branch_then) == (0, "main")


def test_folder_outside_a_repository_has_no_changes(tmp_path):
    assert repository_changes(tmp_path, "2026-11-21T20:14:03.120Z", "") is None


async def test_card_shows_memory_changes_since(repository):
    await closed_session(repository, "hello")
    assert (await card_of(repository)).memory.changes == {}
    other, _ = await opened(repository)
    await write_as_user(
        other.session_memory.manager,
        "user",
        {"preferences.md": "- Answer in German.\n"},
        "Prefer German",
        origin="person",
    )
    await other.close()
    assert (await card_of(repository)).memory.changes == {"user": 1}


@pytest.mark.parametrize("fork", [False, True])
async def test_resume_as_then_sends_memory_as_it_was(repository, fork):
    first, _ = await opened(repository, "Hello.")
    await first.session_memory.with_editor(
        lambda editor: remember_text(editor, "user: Answer in German")
    )
    assert [event async for event in first.send("hello")]
    await first.close()
    other, _ = await opened(repository)
    note = Note(id="mem_0000000a", scope="user", text="The staging host is heron")
    await other.session_memory.with_editor(
        lambda editor: editor.write("user", {note.file_name: note_text(note)}, "x")
    )
    await other.session_memory.with_editor(
        lambda editor: editor.write("user", {"preferences.md": "- Answer in French.\n"}, "x")
    )
    await other.close()

    session, model = await opened(repository, "Yes.", resume=first.id, fork=fork, part="then")
    card = await session.resumed.card()
    assert card.memory.is_held
    assert dict(card_lines(card, now()))["memory"].startswith("as it was, without ")
    assert [event async for event in session.send("Which language, and which staging host heron?")]
    sent = str(model.requests[-1].messages)
    assert "Answer in German" in sent
    assert "French" not in sent
    assert "heron" not in sent.replace("which staging host heron", "")
    await session.close()
    today, model = await opened(repository, "Yes.", resume=first.id)
    assert [event async for event in today.send("Which language, and which staging host?")]
    assert "Answer in French" in str(model.requests[-1].messages)
    assert "host is heron" in str(model.requests[-1].messages)
    await today.close()


async def test_tail_is_sent_and_the_rest_stays_in_the_session(repository):
    await closed_session(repository, f"first {LONG}", f"second {LONG}", "third", "fourth", "fifth")
    session, model = await opened(repository, "Yes.", resume="latest")
    card = await session.resumed.card()
    assert (card.tail.turns, card.tail.tokens < card.tokens / 2) == (3, True)
    seen = [event async for event in session.resumed.continue_with("tail")]
    assert any(
        isinstance(event, Notice) and "4 earlier messages are not sent" in event.text
        for event in seen
    )
    assert [event async for event in session.send("sixth")]
    asked = [message for message in model.requests[-1].messages if message.role == "user"]
    words = [message.text for message in asked if message.text]
    assert words == ["third", "fourth", "fifth", "sixth"]
    note = next(part.text for part in asked[0].parts_of(Context))
    assert "4 earlier messages of this session were left out here, without a summary" in note
    await session.close()
    again, model = await opened(repository, "Yes.", resume="latest")
    assert [event async for event in again.send("seventh")]
    assert [m.text for m in model.requests[-1].messages if m.role == "user" and m.text] == [
        *words,
        "seventh",
    ]
    await again.close()


async def test_pinned_messages_stay_in_the_tail(repository):
    await closed_session(repository, f"first {LONG}", f"second {LONG}", "third", "fourth", "fifth")
    session, model = await opened(repository, "Yes.", resume="latest")
    await session.window.pin(1)
    assert [event async for event in session.resumed.continue_with("tail")]
    assert [event async for event in session.send("sixth")]
    asked = [m.text for m in model.requests[-1].messages if m.role == "user" and m.text]
    assert [text[:6] for text in asked] == ["first ", "third", "fourth", "fifth", "sixth"]
    await session.close()


async def test_request_can_choose_tail_or_summary_on_resume(repository):
    await closed_session(repository, "first", "second", "third", "fourth", "fifth", answer=LONG)
    session, model = await opened(
        repository, "## Goal\nCount.", "Yes.", resume="latest", part="summary"
    )
    assert (await session.resumed.card()).is_long is False
    assert [event async for event in session.send("sixth")]
    notes = [
        part.text for message in model.requests[-1].messages for part in message.parts_of(Context)
    ]
    assert any("## Goal\nCount." in note for note in notes)
    await session.close()


async def test_a_request_for_the_tail_leaves_the_rest_out_before_the_first_call(repository):
    await closed_session(repository, "first", "second", "third", "fourth", "fifth", answer=LONG)
    session, model = await opened(repository, "Yes.", resume="latest", part="tail")
    assert [event async for event in session.send("sixth")]
    words = [
        message.text
        for message in model.requests[-1].messages
        if message.role == "user" and message.text
    ]
    assert words == ["fourth", "fifth", "sixth"], "three turns would be too long for a tail"
    await session.close()


async def test_failed_summary_on_resume_raises_instead_of_sending_all(repository):
    await closed_session(repository, f"first {LONG}", f"second {LONG}", "third")
    with pytest.raises(SessionError, match="Nothing was compacted"):
        await opened(repository, resume="latest", part="summary")
    session, _ = await opened(repository, resume="latest")  # its lock was released
    await session.close()


async def test_card_says_that_the_session_ended_mid_turn(repository):
    session, _ = await opened(repository, call("read", path="api.py"))
    assert [event async for event in session.send("look")]
    await session.close()
    assert (await card_of(repository)).in_the_middle


async def test_card_shows_the_current_worktree(repository, tmp_path):
    await closed_session(repository, "hello")
    folder = tmp_path / "worktree"
    git(repository, "worktree", "add", "-q", str(folder))
    card = await card_of(folder)
    assert (card.info.project, card.folder) == (str(repository), str(folder))
    assert replace(card.repository, subjects=(), changed=0).branch == "worktree"
