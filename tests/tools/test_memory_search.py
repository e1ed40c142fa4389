"""memory_search: results as data, with their sources."""

import os
import sqlite3
from contextlib import closing

import pytest
from fakes.stored_sessions import NOTE, StoredSession
from fakes.tool_benches import call

from ouro.display import Display, Plain
from ouro.errors import SearchUnavailable, ToolError
from ouro.memory.backend import TitleRecord
from ouro.memory.index import index as index_module
from ouro.memory.long_term import make_lookup, make_search, memory_stores, open_scopes
from ouro.memory.long_term.store import repo_store
from ouro.messages import assistant, user
from ouro.safety import Allow, Permissions, Workspace
from ouro.settings import MemorySettings
from ouro.tools.memory_search import CitedText, MemorySearch, MemorySearchArgs
from ouro.tools.tool import parse_arguments

AT = "2026-11-21T20:14:03.120Z"


def lookup_of(root):
    return make_lookup(memory_stores(MemorySettings(), root, lambda _text: ""), lambda: None)


def searching(*hits, asked=None):
    async def search(query, most, since):
        if asked is not None:
            asked.append((query, most, since))
        return hits

    return MemorySearch(search)


async def test_hits_are_quoted_with_their_source():
    tool = searching(
        CitedText("first\n2. second", "note mem_1"), CitedText("tea", "core memory (user)")
    )
    result = await call(tool, query="tea")
    assert (
        result.text == "1. note mem_1\n   > first\n   > 2. second\n2. core memory (user)\n   > tea"
    )
    body = Plain("note mem_1\n  first 2. second\ncore memory (user)\n  tea")
    assert result.display == Display("2 found", body)


async def test_arguments_are_passed_on_and_validated():
    asked = []
    tool = searching(asked=asked)
    result = await call(tool, query="tea", max_results="3", since="2026-11-01")
    assert (asked, result.text) == (
        [("tea", 3, "2026-11-01")],
        "No matches. Try other words, also in another language, or leave since out.",
    )
    assert (
        tool.title(MemorySearchArgs("a\n b", since="2026-11-01")) == 'memory "a b" since 2026-11-01'
    )
    with pytest.raises(ToolError, match="since is a day such as 2026-11-21, not last week"):
        await call(tool, query="tea", since="last week")
    for wrong in (
        {"query": ""},
        {"query": "x", "max_results": 0},
        {"query": "x", "max_results": 51},
    ):
        with pytest.raises(ToolError, match="Wrong arguments"):
            parse_arguments(tool, wrong)


async def test_unreadable_index_is_reported_to_the_model():
    async def search(*_):
        raise SearchUnavailable("The index cannot be read just now: locked.")

    with pytest.raises(ToolError, match="Search again in a moment, or continue without"):
        await call(MemorySearch(search), query="tea")


async def test_a_long_hit_is_cut():
    result = await call(searching(CitedText("x" * 5_000, "s")), query="x")
    assert result.text == f"1. s\n   > {'x' * 1_200} […]"


@pytest.mark.parametrize("mode", ["ask", "edit", "plan", "auto"])
def test_memory_search_needs_no_permission(tmp_path, mode):
    tool = searching()
    permissions = Permissions(Workspace(tmp_path), mode)
    assert (
        permissions.decide(tool.name, tool.effect, tool.targets(MemorySearchArgs("x"))) == Allow()
    )


async def test_notes_core_and_sessions_show_their_source(home, tmp_path):
    memory = home / ".ouro" / "memory"
    memory.mkdir(mode=0o700, parents=True)
    (memory / "facts.md").write_text("# Facts\n- The heron is the staging database.\n")
    os.utime(memory / "facts.md", (1_795_132_800, 1_795_132_800))  # 2026-11-20
    (memory / "mem_3f6c1e00.md").write_text(
        NOTE.format(id="3f6c1e00", text="Never migrate the heron by hand.")
    )
    talk = StoredSession(home / ".ouro" / "sessions", 1, "/home/me/app")
    talk.say(user("Where is the heron?\x1b[31m"), assistant("On db7."))
    talk.change(TitleRecord("the \x07heron", AT))
    lookup = lookup_of(tmp_path)
    result = await call(MemorySearch(make_search(lookup)), query="heron", max_results=3)
    await lookup.close()
    talk.end()
    sources = [line for line in result.text.splitlines() if not line.startswith("   >")]
    assert sorted(line[3:] for line in sources) == [
        "core memory (user, facts) · 2026-11-20 · ~/.ouro/memory/facts.md, line 2",
        (
            "note mem_3f6c1e00 (user, coding-preferences) · 2026-11-20 · learned in session s, turn"
            " 2 · ~/.ouro/memory/mem_3f6c1e00.md"
        ),
        "session 00000001 “the heron” · 2026-11-21 20:14 · message 1, said by user · /home/me/app",
    ]
    assert "\x1b" not in result.text


async def test_notes_of_other_repositories_are_not_returned(home, tmp_path):
    """Whether trusted or not: only a session in that repository knows what is approved there."""
    scopes = open_scopes(
        [repo_store(tmp_path / "here", home / ".ouro" / "history.git", str, is_shared=False)]
    ).opened
    for name in ("here", "elsewhere"):
        memory = tmp_path / name / ".ouro" / "memory"
        memory.mkdir(parents=True)
        (memory / "facts.md").write_text(f"- The heron is {name}.\n")
        lookup = lookup_of(tmp_path / name)
        await lookup.find("heron")
        await lookup.close()
    lookup = lookup_of(tmp_path / "here")
    told = await call(MemorySearch(make_search(lookup, scopes)), query="heron")
    nothing = await call(MemorySearch(make_search(lookup)), query="heron")
    await lookup.close()
    assert "The heron is here." in told.text
    assert "elsewhere" not in told.text + nothing.text


@pytest.fixture
def indexed(home, tmp_path, monkeypatch):
    """A session in the index; returns the path of the index and a function that calls the tool."""
    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.05)
    talk = StoredSession(home / ".ouro" / "sessions", 1)
    talk.say(*(user(f"The heron stands in pond {number}. " * 40) for number in range(20)))
    talk.end()

    async def ask():
        lookup = lookup_of(tmp_path)
        try:
            return await call(MemorySearch(make_search(lookup)), query="heron pond")
        finally:
            await lookup.close()

    return home / ".ouro" / "cache" / "index.db", ask


async def test_corrupted_index_is_rebuilt_before_answering(indexed):
    path, ask = indexed
    assert "The heron stands" in (await ask()).text
    held = path.read_bytes()
    path.write_bytes(held[:8192] + os.urandom(len(held) - 8192))
    assert "The heron stands" in (await ask()).text
    assert path.with_name("index.db.aside").is_file()


async def test_locked_index_falls_back_to_an_in_memory_one(indexed):
    path, ask = indexed
    await ask()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert "The heron stands" in (await ask()).text


async def test_index_failure_during_a_search_tells_how_to_continue(indexed):
    path, ask = indexed
    await ask()
    lookup = lookup_of(path.parent)
    await lookup.find("heron")
    with lookup.search().index.writing() as database:
        database.execute("DROP TABLE messages_words_data")
    with pytest.raises(
        ToolError,
        match=r"cannot be read just now: .* Search again in a moment, or continue without",
    ):
        await call(MemorySearch(make_search(lookup)), query="heron pond")
    assert (
        "The heron stands"
        in (await call(MemorySearch(make_search(lookup)), query="heron pond")).text
    )
    await lookup.close()
