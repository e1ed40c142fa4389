"""Search returns relevant results with their source."""

from datetime import date

import pytest
from fakes.stored_sessions import NOTE, StoredSession
from fakes.waiting import wait

from ouro.errors import SearchUnavailable
from ouro.memory.index import (
    BenchmarkQuestion,
    Document,
    Index,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    answer_questions,
    measure_answers,
    parse_query,
)
from ouro.memory.index.benchmark import SearchAnswer
from ouro.memory.index.scoring import MAX_PASSAGES, PassageRange, word_scores
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, ToolReply, assistant, tool, user

TODAY = date(2026, 11, 22)


@pytest.fixture
def search(home):
    root, memory = home / ".ouro" / "sessions", home / ".ouro" / "memory"
    memory.mkdir(mode=0o700, parents=True)
    (memory / "facts.md").write_text("- The staging database is called heron.\n")
    (memory / "mem_3f6c1e00.md").write_text(
        NOTE.format(id="3f6c1e00", text="Optimistic locking with a retry.")
    )
    talk = StoredSession(root, 1, "/a")
    talk.say(
        user("Which locks shall we take for the orders table?"),
        assistant("Row locks timed out under load. Let us use a version column."),
        user("Good. Write it so."),
        assistant("Done.", ToolCall("1", "shell", {"command": "alembic upgrade"})),
        tool(ToolReply("1", "shell", "heron: migrated the orders table")),
        assistant("", ToolCall("2", "memory_search", {"query": "kingfisher"})),
        tool(ToolReply("2", "memory_search", "1. kingfisher: said by user")),
    )
    talk.end()
    talk = StoredSession(root, 2, "/b")
    talk.say(user("What is for lunch?"), assistant("Soup, as on the menu."))
    talk.end()
    index = Index(home / ".ouro" / "cache" / "index.db")
    index.update(Sources(root, (MemoryFolder("user", "", memory),)))
    yield Search(index)
    index.close()


def search_ids(search, query, wanted=None, k=5) -> list[str]:
    return [hit.id for hit in search.find(query, k, wanted, today=TODAY)]


def test_question_and_answer_are_found_together(search):
    hits = search.find(
        "which locks for the orders table", 2, SearchFilter(kinds=("message",)), today=TODAY
    )
    assert [(hit.session[:8], hit.number, hit.project) for hit in hits] == [
        ("00000001", 1, "/a"),
        ("00000001", 2, "/a"),
    ]
    assert hits[0].parts["asks"] == -0.1
    assert sum(hits[0].parts.values()) == pytest.approx(hits[0].score)


def test_answer_is_found_by_the_words_of_its_neighbour(search):
    """The answer contains neither `lunch` nor a word of the question."""
    [asked, answer] = search.find("lunch", 5, SearchFilter(kinds=("message",)), today=TODAY)
    assert (asked.number, answer.number, answer.text) == (1, 2, "Soup, as on the menu.")
    assert answer.parts["words"] == pytest.approx(0.7)


def test_searches_of_memory_are_not_found_by_a_search(search):
    assert search_ids(search, "kingfisher", SearchFilter(kinds=("message", "output"))) == []


def test_tool_outputs_are_searched_only_on_request(search):
    assert {hit.kind for hit in search.find("heron", 9, today=TODAY)} == {"core", "output"}
    assert search_ids(search, "heron", SearchFilter(kinds=("note", "core", "message"))) == [
        "facts.md:1"
    ]


def test_filters_narrow_the_results(search):
    locks = "locking locks"
    assert search_ids(search, locks, SearchFilter(category="coding-preferences")) == [
        "mem_3f6c1e00"
    ]
    assert search_ids(search, locks, SearchFilter(scope="repo")) == []
    assert search_ids(search, "lunch", SearchFilter(project="/a")) == []
    assert search_ids(search, "lunch soup", SearchFilter(project="/b", since="2026-11-21"))[
        0
    ].startswith("00000002")
    assert search_ids(search, "lunch", SearchFilter(since="2026-11-22")) == []
    assert (
        search_ids(search, "lunch", SearchFilter(session="00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f"))
        == []
    )


def test_copied_session_is_returned_once(search, home):
    root = home / ".ouro" / "sessions"
    talk = StoredSession(root, 3, "/a")
    talk.say(user("What is for lunch?"), assistant("Soup, as on the menu."))
    talk.end()
    search.index.update(Sources(root))
    assert sorted(hit.text for hit in search.find("lunch", 9, today=TODAY)) == [
        "Soup, as on the menu.",
        "What is for lunch?",
    ]


def test_named_day_finds_messages_of_that_day(search):
    assert search_ids(search, "what did we do yesterday?", SearchFilter(kinds=("message",)), 9)
    assert {
        hit.parts["days"]
        for hit in search.find("yesterday", 9, SearchFilter(kinds=("message",)), today=TODAY)
    } == {0.3}
    assert search_ids(search, "what did we do on 3 May 2020?") == []


def test_broken_index_raises_and_can_be_rebuilt(search, home):
    search.index.close()
    (home / ".ouro" / "cache" / "index.db").write_bytes(b"no database at all" * 500)
    assert search_ids(search, "lunch") == []
    search.index.update(Sources(home / ".ouro" / "sessions"))
    assert search_ids(search, "lunch") != []
    with pytest.raises(SearchUnavailable), search.index.reading() as database:
        database.execute("SELECT nothing FROM nowhere")


@pytest.mark.parametrize(
    "query", ["", "?", "the of and", '" OR *', "a" * 20_000, "x " * 5_000, "\x00\ud800 NEAR("]
)
def test_no_query_raises(search, query):
    search.find(query, 5, today=TODAY)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("what did we say on 2026-11-20", [("2026-11-20", "2026-11-20")]),
        ("in May 2025", [("2025-05-01", "2025-05-31")]),
        ("on May 3", [("2026-05-03", "2026-05-03")]),
        ("on the 3rd of December", [("2025-12-03", "2025-12-03")]),
        ("last December", [("2025-12-01", "2025-12-31")]),
        ("in 2024", [("2024-01-01", "2024-12-31")]),
        ("yesterday", [("2026-11-21", "2026-11-21")]),
        ("last week", [("2026-11-09", "2026-11-15")]),
        ("this week", [("2026-11-16", "2026-11-22")]),
        ("last month", [("2026-10-01", "2026-10-31")]),
        ("last year", [("2025-01-01", "2025-12-31")]),
        ("three days ago", [("2026-11-19", "2026-11-19")]),
        ("2 weeks ago", [("2026-11-05", "2026-11-11")]),
        ("on Friday", [("2026-11-20", "2026-11-20")]),
        ("last Sunday", [("2026-11-15", "2026-11-15")]),
        ("you may march on", []),
        ("31 February 2026", []),
        ("on 2026-13-45", []),
        ("port 2025", []),
    ],
)
def test_days_in_a_query_are_parsed(text, days):
    assert list(parse_query(text, today=TODAY).days) == days


def test_speaker_in_a_query_is_parsed():
    assert parse_query("what did I say").speaker == "user"
    assert parse_query("what did you suggest for api.py").spoken == "what did I suggest for api.py"
    assert parse_query("what did you tell me").speaker == ""
    named = parse_query("Where is Ann's dog?", ("Ann", "Bob"))
    assert (named.speaker, named.spoken, named.words) == ("Ann", "Where is my dog?", (("dog",),))
    assert parse_query("who took it", ("Ann",)).words == (("take", "took", "taken"),)


def test_common_word_considers_only_the_newest_places(home):
    index = Index(home / "index.db")
    with index.writing() as database:
        rows = [
            (number, 1, number, "user", "", "common" if number != 7 else "common rare", 0)
            for number in range(1, 9_000)
        ]
        database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)
    with index.reading() as database:
        scores = word_scores(
            database,
            "messages",
            (("rare",), ("common",)),
            PassageRange(9_000),
            has_neighbours=False,
        )
    index.close()
    assert len(scores) == MAX_PASSAGES + 1
    assert max(scores, key=scores.__getitem__) == 7
    assert min(scores.keys() - {7}) == 9_000 - MAX_PASSAGES


TALK = [
    Document("1", "I adopted a puppy.", "Ann", "2023-05-01T10:00", 1, 1),
    Document("2", "Lovely! What is it called?", "Bob", "2023-05-01T10:00", 1, 2),
    Document("3", "Rex, after my uncle.", "Ann", "2023-05-01T10:00", 1, 3),
    Document("4", "I repaired the roof.", "Bob", "2023-06-01T10:00", 2, 1),
    Document("5", "I repaired the fence.", "Ann", "2023-06-01T10:00", 2, 2),
]


def asked(query, tmp_path) -> tuple[str, ...]:
    [answer] = answer_questions(TALK, [BenchmarkQuestion("q", query)], 5, tmp_path, None)
    return answer.ids


def test_documents_are_searched_like_sessions(tmp_path):
    assert asked("What is the name of Ann's puppy?", tmp_path)[:3] == ("1", "3", "2")


@pytest.mark.parametrize(("speaker", "answer"), [("Bob", "4"), ("Ann", "5")])
def test_named_speaker_ranks_first(tmp_path, speaker, answer):
    assert asked(f"What did {speaker} repair?", tmp_path)[0] == answer


def test_recall_and_gain_are_counted():
    measured = measure_answers(
        [SearchAnswer("y", ("x", "y", "z"), 1.0), SearchAnswer("m", ("n",), 3.0)]
    )
    assert (measured.recall, measured.ndcg10, measured.missed) == (
        {"5": 0.5, "10": 0.5, "25": 0.5},
        0.3155,
        ("m",),
    )
    assert (measured.p50_ms, measured.p95_ms) == (3.0, 3.0)


def test_hit_ids_open_the_stored_session(search, home):
    """The ids in a search result open the session."""
    [hit] = search.find("timed out under load", 1, SearchFilter(kinds=("message",)), today=TODAY)
    loaded = wait(
        YamlFileMemoryStore(home / ".ouro" / "sessions").load_session(hit.session, read_only=True)
    )
    assert hit.text in [
        record.message.text
        for record in loaded.records
        if getattr(record, "number", 0) == hit.number
    ]
