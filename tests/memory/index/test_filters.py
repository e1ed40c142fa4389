"""A filter limits the search itself, not its results: matches are found whatever else ranks above
them.
"""

import pytest
from fakes.knowledge import WordEmbedder

from ouro.memory.index import Index, Search, SearchFilter, Vectors
from ouro.memory.index.passages import POSITION_BITS, content_hash

CROWD = 2_200
"""The number of passages, and of notes, of another project that match equally well and are newer.
"""
TEXT = "the deploy of the gateway failed"
BOTH = {f"{TEXT}, rare as it is", f"{TEXT}, put away"}
ASKED = "why did the gateway deploy fail"


def say(database, project, texts, at, until=""):
    """Insert a session of a project; `until` is the time of its last text."""
    (seq,) = database.execute(
        "INSERT INTO sessions (id, folder, project, created_at, updated_at, passages, outputs,"
        " size, mtime, read, hash) SELECT 's' || count(*), 's' || count(*), ?, ?, ?, ?, ?, 0, 0, 0,"
        " x'' FROM sessions RETURNING seq",
        (project, at, until or at, len(texts), len(texts)),
    ).fetchone()
    rows = [
        (seq << POSITION_BITS | place, seq, place, "user", at, text)
        for place, text in enumerate(texts, 1)
    ]
    rows[-1] = (*rows[-1][:4], until or at, rows[-1][5])
    database.executemany("INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?)", rows)
    marked = [(*row, content_hash(row[5])) for row in rows]
    database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", marked)


def note(database, number, text, project="", category="facts", archived=False):
    scope = "repo" if project else "user"
    day = f"2026-01-{number % 28 + 1:02}"
    row = (f"/{number}.md", "note", f"mem_{number:08x}", 0, scope, project, category, text, day, 0.9,
           "user", "", "", 0, "", archived, content_hash(text))  # fmt: skip
    database.execute(f"INSERT INTO notes VALUES (NULL, {', '.join('?' * len(row))}, NULL, '')", row)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    made = Index(tmp_path_factory.mktemp("crowded") / "index.db")
    with made.writing() as database:
        say(database, "/rare", [f"{TEXT}, rare as it is", "thanks"], "2026-01-01T10")
        say(
            database,
            "/long",
            [*[f"{TEXT} early {n}" for n in range(20)], f"{TEXT} later"],
            "2026-01-02T10",
            "2026-02-02T10",
        )
        for start in range(0, CROWD, 100):
            say(
                database,
                "/crowd",
                [f"{TEXT} again {start + n}" for n in range(100)],
                "2026-01-03T10",
            )
        note(database, 1, f"{TEXT}, rare as it is", "/rare", "api-quirks")
        note(database, 2, f"{TEXT}, put away", "/rare", archived=True)
        for number in range(CROWD):
            note(database, 10 + number, f"{TEXT} again {number}", "/crowd")
    yield made
    made.close()


@pytest.fixture(scope="module", params=["words", "vectors"])
def search(request, index):
    vectors = Vectors(index, WordEmbedder()) if request.param == "vectors" else None
    while vectors and vectors.fill(1_000):
        pass
    return Search(index, vectors)


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        (SearchFilter(kinds=("message",), project="/rare"), {f"{TEXT}, rare as it is"}),
        (SearchFilter(kinds=("message",), session="s0"), {f"{TEXT}, rare as it is"}),
        (SearchFilter(kinds=("message",), since="2026-02-01"), {f"{TEXT} later"}),
        (SearchFilter(kinds=("message",), since="2026-02-01", project="/rare"), set()),
        (SearchFilter(kinds=("message",), project="/nowhere"), set()),
        (SearchFilter(kinds=("output",), project="/rare"), {f"{TEXT}, rare as it is"}),
        (SearchFilter(kinds=("note",), project="/rare"), {f"{TEXT}, rare as it is"}),
        (SearchFilter(kinds=("note",), category="api-quirks"), {f"{TEXT}, rare as it is"}),
        (SearchFilter(kinds=("note",), scope="repo", project="/rare", archived=True), BOTH),
        (SearchFilter(kinds=("note",), project="/rare", since="2026-02-01"), set()),
    ],
)  # fmt: skip
def test_filtered_messages_are_found_behind_many_others(search, wanted, texts):
    found = {hit.text for hit in search.find(ASKED, 5, wanted) if hit.text != "thanks"}
    assert found == texts


def test_filtered_nearest_vectors_are_found_behind_many_others(index):
    vectors = Vectors(index, WordEmbedder())
    while vectors.fill(1_000):
        pass
    search = Search(index, vectors)
    wanted = [SearchFilter(kinds=("note",), project="/rare")]
    assert [hit.text for hit in search.nearest_notes([ASKED], 3, wanted)] == [
        f"{TEXT}, rare as it is"
    ]
    for narrow, session in (
        (SearchFilter(session="s0"), "s0"),
        (SearchFilter(since="2026-02-01"), "s1"),
    ):
        (hit,) = search.find("nothing of the kind", 1, narrow)
        assert (hit.session, hit.parts["words"]) == (session, 0.0)


def test_unfiltered_search_finds_the_crowd(search):
    hits = search.find(ASKED, 5)
    assert len(hits) == 5
    assert "/crowd" in {hit.project for hit in hits}


def count_steps(index, wanted):
    """The steps of SQLite, in hundreds, for a search by words in notes."""
    steps = []
    with index.reading() as database:
        database.set_progress_handler(lambda: steps.append(1), 100)
        Search(index).find("deploy", 5, wanted)
        database.set_progress_handler(None, 0)
    return len(steps)


def test_a_search_in_no_note_reads_none(index):
    """The rules for a kind of task are searched for in three categories, which may be empty."""
    nothing = SearchFilter(kinds=("note",), category="corrections")
    assert count_steps(index, nothing) < 5


def test_an_index_of_an_earlier_version_gets_what_it_lacks(index):
    nothing = SearchFilter(kinds=("note",), category="corrections")
    with index.writing() as database:
        database.execute("DROP INDEX notes_by_filter")
    assert count_steps(index, nothing) > 20
    index.add_missing_sql_indexes()
    assert count_steps(index, nothing) < 5
