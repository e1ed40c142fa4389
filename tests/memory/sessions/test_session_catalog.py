"""Stored sessions: found by title and by text, previewed, renamed, archived."""

import pytest
from fakes.waiting import wait

from ouro.errors import SessionInUse, SessionNotFound, SeveralSessions
from ouro.memory.backend import MessageRecord, SessionHeader, SummaryRecord, TitleRecord
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.index import Index, Sources
from ouro.memory.sessions import session_index
from ouro.memory.sessions.session_catalog import SessionCatalog, SessionExcerpt, find_session
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, ToolReply, assistant, user

AT = "2026-11-21T20:14:{:02}.000Z"
PROJECT = "/home/me/app"


def session_id(number):
    return f"{number:08x}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


def add(store, number, title, *messages, project=PROJECT):
    header = SessionHeader(session_id(number), project, "a/b", AT.format(number))
    wait(store.create_session(header))
    for place, message in enumerate(messages, 1):
        wait(store.save_message(header.id, MessageRecord(place, AT.format(number), message)))
    wait(store.save_memory(header.id, TitleRecord(title, AT.format(number))))
    wait(store.close_session(header.id))


def fill(store):
    add(
        store,
        1,
        "mend the import",
        user("The Lexer drops its last token."),
        assistant("Mended in api.py."),
    )
    add(
        store,
        2,
        "the parser",
        user("why?"),
        Message("tool", (ToolReply("c", "read", "the lexer is in here"),)),
    )
    add(
        store,
        3,
        "the parser again",
        user("Ärger mit dem PARSER"),
        assistant("Ja."),
        project="/elsewhere",
    )


@pytest.fixture
def root(tmp_path):
    return tmp_path / "sessions"


@pytest.fixture
def store(root):
    made = YamlFileMemoryStore(root)
    fill(made)
    return made


def test_one_session_is_found_in_the_index_without_reading_its_file(store, root, monkeypatch):
    infos = {info.folder: info for info in session_index.list_infos(root)}
    assert len(infos) == 3
    monkeypatch.setattr(session_index, "survey", None)
    assert {folder: session_index.find_info(root, folder) for folder in infos} == infos
    assert session_index.find_info(root, "2026-11-21_ffffffff") is None


@pytest.fixture
def catalog(store, root, tmp_path):
    return SessionCatalog(store, PROJECT, root, tmp_path / "index.db")


async def hits(catalog, words):
    return [
        (hit.session_id[:8], hit.number)
        async for hit in catalog.search(await catalog.sessions(), words)
    ]


def test_session_is_found_by_id_latest_title_and_message_text(catalog):
    asked = (
        "00000001",
        session_id(3),
        "latest",
        "last",
        "MEND import",
        "again parser",
        "drops lexer",
        "ärger",
    )
    assert [wait(catalog.find(query)).title for query in asked] == [
        "mend the import",
        "the parser again",
        "the parser",
        "the parser",
        "mend the import",
        "the parser again",
        "mend the import",
        "the parser again",
    ]
    with pytest.raises(SessionNotFound, match="No session matches `zebra`"):
        wait(catalog.find("zebra"))


def test_ambiguous_query_raises_with_the_ids(catalog):
    add(catalog.store, 4, "the parser, a third time", user("x"))
    with pytest.raises(SeveralSessions) as caught:
        wait(catalog.find("parser"))
    assert caught.value.ids == (
        session_id(4),
        session_id(2),
    )  # sessions of this project come before those of others


def test_exact_title_comes_before_titles_with_its_words(catalog):
    add(catalog.store, 4, "the parser, a third time", user("x"))
    add(catalog.store, 5, "Parser", user("x"))
    assert wait(catalog.find("parser")).id == session_id(5)


def test_id_prefix_that_is_also_a_title_word_is_ambiguous(store, root, tmp_path):
    add(store, 0xADD00000, "something", user("x"))
    add(store, 5, "add a test", user("x"))
    with pytest.raises(SeveralSessions):
        wait(SessionCatalog(store, PROJECT, root, tmp_path / "index.db").find("add"))


async def test_messages_are_searched_newest_first_without_outputs(catalog):
    assert await hits(catalog, "lexer TOKEN") == [("00000001", 1)]
    assert await hits(catalog, "ärger") == [("00000003", 1)]
    assert await hits(catalog, "lexer zebra") == []
    assert await hits(catalog, "") == []


async def test_snippet_shows_the_words_in_context(catalog):
    found = [hit async for hit in catalog.search(await catalog.sessions(), "drops")]
    assert found[0].snippet == "The Lexer drops its last token."


async def test_search_uses_the_index_and_reads_newer_files(catalog, root, tmp_path):
    index = Index(tmp_path / "index.db")
    index.update(Sources(root))
    index.close()
    assert await hits(catalog, "lexer") == [("00000001", 1)]
    add(catalog.store, 4, "newer", user("the lexer, once more"))
    assert await hits(catalog, "lexer") == [("00000001", 1), ("00000004", 1)]
    assert (await catalog.find("once more")).title == "newer"


async def test_broken_index_falls_back_to_the_files(catalog, tmp_path):
    (tmp_path / "index.db").write_bytes(b"no database at all" * 100)
    assert await hits(catalog, "lexer") == [("00000001", 1)]


async def test_search_can_be_closed_early(store, root, tmp_path):
    for number in range(10, 40):
        add(store, number, f"session {number}", user("the same words"))
    search = SessionCatalog(store, PROJECT, root, tmp_path / "index.db")
    found = search.search(await search.sessions(), "same")
    assert (await anext(found)).session_id == session_id(39)
    await found.aclose()


def test_preview_has_the_summary_first_and_last_messages(store, catalog):
    add(
        store,
        4,
        "long",
        *(user(f"question {n}") if n % 2 else assistant(f"answer {n}") for n in range(1, 21)),
    )
    wait(store.load_session(session_id(4)))
    wait(store.save_memory(session_id(4), SummaryRecord("Much was asked.", AT.format(5), 20)))
    wait(store.close_session(session_id(4)))
    last = tuple(
        ("user" if n % 2 else "assistant", f"{'question' if n % 2 else 'answer'} {n}")
        for n in range(15, 21)
    )
    assert wait(
        catalog.preview(wait(catalog.store.get_session_stats(session_id(4))))
    ) == SessionExcerpt("Much was asked.", "question 1", last)
    assert wait(
        catalog.preview(wait(catalog.store.get_session_stats(session_id(2))))
    ) == SessionExcerpt("", "why?", ())


def test_open_session_is_not_renamed_or_deleted(catalog, store):
    wait(catalog.rename(session_id(1), "another name"))
    assert wait(catalog.store.get_session_stats(session_id(1))).title == "another name"
    wait(catalog.store.delete_session(session_id(1)))
    assert [each.title for each in wait(catalog.store.list_deleted())] == ["another name"]
    wait(catalog.store.restore_session(session_id(1)))
    assert len(wait(catalog.sessions())) == 3
    wait(store.load_session(session_id(2)))
    for change in (
        lambda: wait(catalog.rename(session_id(2), "x")),
        lambda: wait(store.delete_session(session_id(2))),
    ):
        with pytest.raises(SessionInUse):
            change()


def test_unsaved_sessions_are_found_too():
    store = DictMemoryStore()
    add(store, 1, "mend the import", user("hello"), assistant("done"))
    catalog = SessionCatalog(store, PROJECT)
    info = wait(catalog.find("import"))
    assert wait(catalog.preview(info)) == SessionExcerpt("", "hello", (("assistant", "done"),))


def test_a_session_that_was_killed_before_its_first_record_is_not_the_latest(root):
    store = YamlFileMemoryStore(root)
    add(store, 1, "mend the import", user("hello"))
    killed = root / "2026-11-28_abcdef12"
    killed.mkdir(mode=0o700)
    (killed / "session.yaml").write_text("id: abc")
    sessions = session_index.list_infos(root)
    assert len(sessions) == 2
    assert find_session(sessions, "latest", lambda _: True).title == "mend the import"
    (unreadable,) = [session for session in sessions if not session.messages]
    with pytest.raises(SessionNotFound):
        find_session([unreadable], "latest", lambda _: True)
