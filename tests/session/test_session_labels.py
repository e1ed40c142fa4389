"""What tells sessions apart in lists: branch, changed files, tags, and a pin."""

import pytest

from ouro.assemble import Options, opener
from ouro.errors import SessionNotFound, UsageError
from ouro.events import PermissionAsked, Permit
from ouro.frontends.session_format import session_labels
from ouro.frontends.session_matches import SessionMatches
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session.session_labels import read_tags
from ouro.utils.git import git_branch


def make(repository, *script, **options):
    model = ScriptedModel(script)
    return opener(Options(repository, ready_model=model, **options))


async def play(session, text):
    async for event in session.send(text):
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit("yes"))


def write(path, text="x"):
    return call("write", path=path, content=text)


async def listed(session):
    (info,) = await session.session_catalog.sessions_here()
    return info


async def test_a_list_knows_branch_changed_files_tags_and_pin_of_a_session(repository):
    session = await make(repository, write("a.py"), write("b.py"), write("a.py"), "Done.")(
        OpenRequest()
    )
    await play(session, "write two files")
    session.labels.tag(["parser", "später"])
    session.labels.tag(["speed"], removed=["parser"])
    session.labels.pin(pinned=True)
    await session.close()
    info = await listed(session)
    assert (info.branch, info.files) == (git_branch(repository), 2)
    assert (info.tags, info.pinned) == (("später", "speed"), True)
    assert session_labels(info) == f"{info.branch} · 2 files · #später #speed"


async def test_labels_set_before_the_first_message_are_kept_with_it(repository):
    opens = make(repository, "Done.", "Done.")
    session = await opens(OpenRequest())
    session.labels.tag(["early"])
    session.labels.pin(pinned=True)
    session.rename("A title")
    await play(session, "begin")
    await session.close()
    info = await listed(session)
    assert (info.tags, info.pinned, info.title) == (("early",), True, "A title")
    again = await opens(OpenRequest("#early"))
    assert (again.labels.tags, again.labels.pinned) == (("early",), True)
    await again.close()


async def test_a_resumed_session_counts_the_files_on(repository):
    opens = make(repository, write("a.py"), "Done.", write("b.py"), "Done.", write("b.py"), "Done.")
    session = await opens(OpenRequest())
    await play(session, "write a")
    session.labels.tag(["parser"])
    await session.close()
    again = await opens(OpenRequest("#parser"))
    assert again.id == session.id
    await play(again, "write b")
    await play(again, "write b again")
    await again.close()
    info = await listed(again)
    assert (info.files, info.tags) == (2, ("parser",))


async def test_files_changed_after_a_rewind_are_counted(repository):
    script = [write("a.py"), "Done.", write("b.py"), write("c.py"), "Done."]
    session = await make(repository, *script)(OpenRequest())
    await play(session, "write a")
    await session.rewind.undo()
    await play(session, "write b and c")
    await session.close()
    assert (await listed(session)).files == 3


async def test_a_session_is_labelled_from_outside_and_keeps_branch_and_files(repository):
    session = await make(repository, write("a.py"), "Done.")(OpenRequest())
    await play(session, "write a")
    await session.close()
    before = await listed(session)
    await session.session_catalog.label(before, ["one"], pinned=True)
    after = await listed(session)
    assert (after.tags, after.pinned) == (("one",), True)
    assert (after.branch, after.files) == (before.branch, before.files)


async def test_a_tag_in_a_search_narrows_the_list_and_pinned_sessions_are_first(repository):
    opens = make(repository, *["Done."] * 3, interactive=True)
    for text, tags in (("first", ["parser"]), ("second", ["Parsing"]), ("third", [])):
        session = await opens(OpenRequest())
        await play(session, f"{text} message")
        session.labels.tag(tags)
        session.labels.pin(pinned=text == "first")
        await session.close()
    catalog = session.session_catalog
    matches = SessionMatches(await catalog.sessions(), catalog.is_here)

    def titles(text):
        matches.set_search(text)
        return [match.info.title for match in matches.matches()]

    assert titles("") == ["first message", "third message", "second message"]
    assert titles("#pars") == ["first message", "second message"]
    assert titles("#parsing") == ["second message"]
    assert titles("#pars second") == ["second message"]
    assert titles("#other") == []
    assert [
        info.title for info in await catalog.matching(await catalog.sessions_here(), "#pars first")
    ] == ["first message"]
    with pytest.raises(SessionNotFound, match="No session has the tag `#other`"):
        await catalog.find("#other")


def test_tags_are_words_with_or_without_their_sign():
    assert read_tags("parser #v1.2 -old -#gone") == (["parser", "v1.2"], ["old", "gone"])
    for wrong in ("a,b", "##", "-", "x" * 50):
        with pytest.raises(UsageError):
            read_tags(wrong)


async def test_a_session_of_a_script_is_not_listed_until_a_user_continues_it(repository):
    of_script = await make(repository, "Done.")(OpenRequest())
    await play(of_script, "from a script")
    await of_script.close()
    info = await listed(of_script)
    assert (info.headless, info.is_listed) == (True, False)
    catalog = of_script.session_catalog
    await catalog.label(info, ["nightly"], pinned=True)
    assert (await listed(of_script)).is_listed  # the user has pinned it
    await catalog.label(info, [], pinned=False)
    assert not (await listed(of_script)).is_listed

    of_user = await make(repository, "Yes.", interactive=True)(OpenRequest(info.id))
    await play(of_user, "and now by hand")
    await of_user.close()
    assert (await listed(of_user)).is_listed

    again = await make(repository, "Done.")(OpenRequest(info.id))
    await play(again, "a script continues it")
    await again.close()
    assert (await listed(again)).is_listed


async def test_a_fork_by_a_script_is_not_listed(repository):
    of_user = await make(repository, "Yes.", interactive=True)(OpenRequest())
    await play(of_user, "by hand")
    await of_user.close()
    fork = await make(repository, "Done.")(OpenRequest(of_user.id, fork=True))
    await play(fork, "from a script")
    await fork.close()
    sessions = await fork.session_catalog.sessions_here()
    assert {info.id: info.is_listed for info in sessions} == {of_user.id: True, fork.id: False}


async def test_latest_is_the_last_session_of_a_user_or_for_a_script_the_last_of_all(repository):
    of_user = await make(repository, "Yes.", interactive=True)(OpenRequest())
    await play(of_user, "by hand")
    await of_user.close()
    of_script = await make(repository, "Done.")(OpenRequest())
    await play(of_script, "from a script")
    await of_script.close()

    for interactive, expected in ((True, of_user), (False, of_script)):
        resumed = await make(repository, interactive=interactive)(OpenRequest("latest"))
        assert resumed.id == expected.id
        await resumed.close()

    await of_script.session_catalog.store.delete_session(of_user.id)
    resumed = await make(repository, interactive=True)(OpenRequest("latest"))
    assert resumed.id == of_script.id  # better than none
    await resumed.close()
