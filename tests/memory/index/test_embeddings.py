"""Vectors: which are stored, reused and computed again."""

import fcntl
import os
import sqlite3
import subprocess
import sys
import weakref
from contextlib import closing

import numpy as np
import pytest
from fakes.stored_sessions import StoredSession
from fakes.waiting import until, wait

from ouro.errors import ModelError
from ouro.llm import Catalog, Embedded
from ouro.memory.index import (
    Index,
    Lookup,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    Vectors,
    choose_embedder,
    embeddings,
    local_embedder,
)
from ouro.memory.index.embeddings import LocalEmbedder, RemoteEmbedder
from ouro.memory.index.lookup import CLOSE_NOTES
from ouro.memory.index.session_indexer import IndexedSession, add_words, save_session
from ouro.memory.index.vector_process import (
    _decode,
    _encode,
    lock_path,
    start_vector_process,
)
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Usage, assistant, user
from ouro.session.budget import VectorBudget
from ouro.settings import LimitSettings
from ouro.utils.detached_process import is_locked

START_PROCESS = Lookup._start_process
"""In the tests of sessions it is replaced by a function that does nothing."""
needs_weights = pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"
)


@needs_weights
def test_idle_local_model_is_unloaded_and_reloaded(monkeypatch):
    monkeypatch.setattr(embeddings, "RELEASE_AFTER", 0.05)
    embedder = embeddings.LocalEmbedder(local_embedder()._weights)
    before = embedder.embed(["the cat sat"])
    model, timer = weakref.ref(embedder._model), embedder._timer
    timer.join()
    assert model() is None  # even without the garbage collector
    assert np.array_equal(embedder.embed(["the cat sat"]), before)


class Counting:
    """Vectors that count letters; records the texts."""

    def __init__(self, name: str = "letters") -> None:
        self.name = name
        self.asked: list[str] = []
        self.letters = "abcdefghijklmnop"

    def embed(self, texts):
        self.asked += texts
        counts = [[text.count(letter) + 0.01 for letter in self.letters] for text in texts]
        rows = np.array(counts, np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def close(self):
        self.is_closed = True


@pytest.fixture
def indexed_session(home):
    """A session with three messages, and an index that contains it."""
    root = home / ".ouro" / "sessions"
    talk = StoredSession(root)
    talk.say(user("aaab"), assistant("ccd"), user("kkkl"))
    talk.end()
    index = Index(home / ".ouro" / "cache" / "index.db")
    index.update(Sources(root))
    yield index, root
    index.close()


def missing(index) -> int:
    """Passages and notes without a vector."""
    with index.reading() as database:
        counts = (
            "(SELECT count(*) FROM messages WHERE stamp IS NULL) + (SELECT count(*) FROM notes"
            " WHERE stamp IS NULL)"
        )
        return database.execute(f"SELECT {counts}").fetchone()[0]


def nearest(index, embedder, query) -> list[str]:
    search = Search(index, Vectors(index, embedder))
    return [hit.text for hit in search.find(query, 1, SearchFilter(kinds=("message",)))]


def test_text_without_common_words_is_found_by_its_vector(indexed_session):
    index, _ = indexed_session
    embedder = Counting()
    vectors = Vectors(index, embedder)
    assert (missing(index), vectors.fill(), missing(index)) == (3, 3, 0)
    assert nearest(index, embedder, "aab") == ["aaab"]
    assert nearest(index, embedder, "kl") == ["kkkl"]


def test_first_search_compares_vectors_read_in_batches(indexed_session, monkeypatch):
    index, _ = indexed_session
    Vectors(index, Counting()).fill()
    monkeypatch.setattr("ouro.memory.index.vector_signs._MAX_STORED", 1)
    assert nearest(index, Counting(), "aab") == ["aaab"]
    assert nearest(index, Counting(), "kl") == ["kkkl"]


def test_where_no_text_is_compared_the_model_is_not_asked(indexed_session):
    index, _ = indexed_session
    embedder = Counting()
    Vectors(index, embedder).fill()
    search, asked = Search(index, Vectors(index, embedder)), len(embedder.asked)
    for kinds in (("note",), ("core", "output")):
        assert not search.find("aab", 1, SearchFilter(kinds=kinds))
    assert not search.nearest_notes(["aab"], 1, [SearchFilter(kinds=("note",))])
    assert len(embedder.asked) == asked


def test_text_is_embedded_once_even_if_reindexed(indexed_session):
    index, root = indexed_session
    embedder = Counting()
    Vectors(index, embedder).fill()
    index.rebuild(Sources(root))
    vectors = Vectors(index, embedder)
    assert missing(index) == 3
    vectors.fill()
    assert sorted(embedder.asked) == ["aaab", "ccd", "kkkl"]
    assert nearest(index, embedder, "aab") == ["aaab"]


def test_each_text_is_embedded_once_per_model(indexed_session):
    index, _ = indexed_session
    one, other = Counting("one"), Counting("two")
    for embedder in (one, other, one, other):
        vectors = Vectors(index, embedder)
        while vectors.fill():
            pass
        assert missing(index) == 0
        assert nearest(index, embedder, "aab") == ["aaab"]
    for embedder in (one, other):
        assert sorted(each for each in embedder.asked if each != "aab") == ["aaab", "ccd", "kkkl"]
    Vectors(index, Counting("three")).fill(1)
    assert nearest(index, one, "aab") == ["aaab"]  # even before a fill


def test_two_models_filling_at_once_do_not_interfere(indexed_session):
    index, _ = indexed_session
    other = Counting("other")

    class Interrupted(Counting):
        def embed(self, texts):
            Vectors(index, other).fill(1)
            return super().embed(texts)

    again = Counting()
    Vectors(index, Interrupted()).fill()
    for embedder in (other, again):
        vectors = Vectors(index, embedder)
        while vectors.fill():
            pass
        assert missing(index) == 0
    assert (sorted(other.asked), again.asked) == (["aaab", "ccd", "kkkl"], [])


def test_vectors_of_unused_models_are_deleted(indexed_session):
    index, _ = indexed_session
    Vectors(index, Counting("one")).fill()
    with index.writing() as database:
        database.execute("UPDATE models SET used = '2026-01-01'")
    Vectors(index, Counting("two")).fill()
    with index.reading() as database:
        assert database.execute("SELECT name FROM models").fetchall() == [("two",)]
        assert database.execute("SELECT count(*) FROM vectors").fetchall() == [(3,)]


def test_changed_vector_length_triggers_new_embeddings(indexed_session):
    index, root = indexed_session
    embedder = Counting()
    running = Search(index, Vectors(index, embedder))
    Vectors(index, embedder).fill()
    assert [hit.text for hit in running.find("aab", 1)] == ["aaab"]
    embedder.letters = "lkdcba"
    assert running.find("bba", 1) == []  # only words count until the vectors are computed again
    for vectors in (Vectors(index, embedder), running.vectors):
        while vectors.fill():
            pass
        assert missing(index) == 0
    assert [hit.text for hit in running.find("bba", 1)] == ["aaab"]
    assert nearest(index, embedder, "kl") == ["kkkl"]
    index.rebuild(Sources(root))
    with index.writing() as database:
        database.execute(
            "DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM messages WHERE text = 'kkkl')"
        )
    embedder.letters = "klmabcd"  # another length while the missing vectors are computed
    while Vectors(index, embedder).fill():
        pass
    assert embedder.asked[-1] == "kkkl"


@pytest.mark.parametrize("version", [4])
def test_vectors_of_an_older_index_version_are_reused(indexed_session, version):
    index, root = indexed_session
    embedder = Counting()
    Vectors(index, embedder).fill()
    with index.writing() as database:
        database.execute("UPDATE facts SET value = 'old' WHERE name = 'made'")
    index.close()
    with closing(sqlite3.connect(root.parent / "cache" / "index.db")) as database:
        if version < 5:
            database.execute(
                "CREATE TABLE before (hash INTEGER PRIMARY KEY, model TEXT NOT NULL, vector BLOB"
                " NOT NULL)"
            )
            database.execute("INSERT INTO before SELECT hash, 'letters', vector FROM vectors")
            database.execute("DROP TABLE vectors")
            database.execute("DROP TABLE models")
            database.execute("ALTER TABLE before RENAME TO vectors")
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()
    index.update(Sources(root))
    vectors = Vectors(index, embedder)
    assert missing(index) == 3
    vectors.fill()
    assert (missing(index), len(embedder.asked)) == (0, 3)
    assert nearest(index, embedder, "aab") == ["aaab"]
    assert index.build_id() != "old"


def test_running_search_follows_new_vectors_and_deleted_sessions(indexed_session):
    index, root = indexed_session
    embedder = Counting()
    vectors = Vectors(index, embedder)
    vectors.fill()
    search = Search(index, vectors)
    assert [hit.text for hit in search.find("mmn", 1)] != ["mmmn"]
    talk = StoredSession(root, 2)
    talk.say(user("mmmn"))
    talk.end()
    index.update(Sources(root))
    vectors.fill()
    assert [hit.text for hit in search.find("mmn", 1)] == ["mmmn"]
    (session,) = root.glob("*00000002*")
    (session / "session.yaml").unlink()
    index.update(Sources(root))
    assert "mmmn" not in [hit.text for hit in search.find("mmn", 9)]


def test_numpy_thread_limit_is_not_passed_to_child_processes(indexed_session, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    Vectors(indexed_session[0], Counting())
    assert "OPENBLAS_NUM_THREADS" not in os.environ


async def test_lookup_embeds_new_messages_in_the_background(home):
    root = home / ".ouro" / "sessions"
    embedder = Counting()
    lookup = Lookup(home / ".ouro" / "cache" / "index.db", lambda: Sources(root), lambda: embedder)
    talk = StoredSession(root)
    talk.say(user("aaab"))
    await lookup.keep_up()
    assert embedder.asked == ["aaab"]
    talk.say(assistant("ccd"))
    talk.end()
    assert [hit.text for hit in await lookup.find("ccd", 1)] == ["ccd"]
    await lookup.close()


class Far:
    """A remote embedding model that raises `failure`, if set; its vectors are those of Counting."""

    failure = ModelError("The server is on fire.")

    def __init__(self):
        self.asked = 0

    def embed(self, texts):
        self.asked += 1
        if self.failure:
            raise self.failure
        return Embedded(Counting().embed(texts).tolist(), Usage(10 * len(texts), cost=0.25))

    def close(self):
        self.is_closed = True


async def test_failing_model_falls_back_to_words_and_is_logged_once(home, caplog, monkeypatch):
    root = home / ".ouro" / "sessions"
    talk = StoredSession(root)
    talk.say(user("aaab"))
    talk.end()
    far = Far()
    lookup = Lookup(home / "index.db", lambda: Sources(root), lambda: RemoteEmbedder("far", far))
    await lookup.keep_up()
    for _ in range(3):
        assert [hit.text for hit in await lookup.find("aaab", 1)] == ["aaab"]
    assert caplog.text.count("The server is on fire") == 1
    assert far.asked == 1  # there is a pause after a failure
    monkeypatch.setattr(embeddings, "_RETRY_AFTER_SECONDS", 0.0)
    embedder = RemoteEmbedder("far", far)
    with pytest.raises(ModelError, match="fire"):
        embedder.embed(["aab"])
    far.failure = None
    assert embedder.embed(["aab"]).shape == (1, 16)
    await lookup.close()
    assert far.is_closed


def test_embedding_cost_is_recorded_and_obeys_the_limits(home):
    session_catalog = SessionCatalog(YamlFileMemoryStore(home / ".ouro" / "sessions"), "/p")
    far = Far()
    far.failure = None
    embedder = RemoteEmbedder(
        "far/away", far, VectorBudget(session_catalog, LimitSettings(max_cost_day=0.4))
    )
    embedder.embed(["one", "two"])
    embedder.embed(["three"])
    with pytest.raises(ModelError, match=r"today has cost \$0\.50 of \$0\.40"):
        embedder.embed(["four"])
    assert far.asked == 2
    ((model, usage, calls),) = [
        (each.model, each.usage, each.calls) for each in wait(session_catalog.store.load_costs())
    ]
    assert (model, usage, calls) == ("far/away", Usage(30, cost=0.5), 2)


def test_model_without_vectors_is_not_used(home, caplog):
    (home / ".ouro").mkdir(exist_ok=True)
    models = home / ".ouro" / "models.yaml"
    models.write_text(
        "models:\n  anthropic/claude-sonnet-5: {api_key: k}\nembed: anthropic/claude-sonnet-5\n"
    )
    models.chmod(0o600)
    assert choose_embedder("", Catalog.from_files()) is None
    assert "is not an embedding model" in caplog.text


@needs_weights
def test_local_model_is_shared_between_sessions():
    assert choose_embedder("", Catalog({}, {})) is choose_embedder("", Catalog({}, {}))


async def test_notes_of_a_short_session_are_embedded_on_close(tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "facts.md").write_text("- aaab\n")
    sources = Sources(tmp_path / "sessions", (MemoryFolder("user", "", memory),))
    lookup = Lookup(tmp_path / "index.sqlite", lambda: sources, Counting)
    lookup.mark_turn_done()
    await lookup.close()
    with closing(Index(tmp_path / "index.sqlite")) as index:
        assert missing(index) == 0
        with index.reading() as database:
            assert database.execute("SELECT count(*) FROM vectors").fetchone() == (1,)


async def test_short_session_embeds_only_part_of_a_large_import(tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "facts.md").write_text("".join(f"- fact {number}\n" for number in range(100)))
    sources = Sources(tmp_path / "sessions", (MemoryFolder("user", "", memory),))
    lookup = Lookup(tmp_path / "index.sqlite", lambda: sources, Counting)
    lookup.mark_turn_done()
    await lookup.close()
    with closing(Index(tmp_path / "index.sqlite")) as index:
        assert missing(index) == 100 - CLOSE_NOTES


@needs_weights
@pytest.mark.parametrize("end", ["of the turn", "of the session"])
async def test_the_local_model_runs_in_a_process_that_outlives_the_session(home, monkeypatch, end):
    monkeypatch.setattr(Lookup, "_start_process", START_PROCESS)
    monkeypatch.setattr(LocalEmbedder, "embed", None)  # must not run in this process
    memory = home / ".ouro" / "memory"
    memory.mkdir(parents=True)
    path = home / "index.db"
    sources = Sources(memories=(MemoryFolder("user", "", memory),))
    lookup = Lookup(path, lambda: sources, local_embedder)
    (memory / "facts.md").write_text("- the parser drops a line\n- the harbour is at Oslo\n")
    if end == "of the turn":
        await lookup.keep_up()
    lookup.mark_turn_done()
    await lookup.close()
    with closing(Index(path)) as index:
        vectors = Vectors(index, local_embedder())
        await until(lambda: vectors.are_usable() and not vectors.are_missing())
    await until(lambda: not is_locked(lock_path(path)))


@needs_weights
async def test_no_process_is_started_if_no_vector_is_missing(home, monkeypatch):
    started = []
    monkeypatch.setattr(Lookup, "_start_process", lambda _lookup: started.append(1))
    memory = home / "memory"
    memory.mkdir()
    (memory / "facts.md").write_text("- the parser drops a line\n")
    sources = Sources(memories=(MemoryFolder("user", "", memory),))
    os.utime(memory, (1, 1))
    for number in range(2):
        lookup = Lookup(home / "index.db", lambda: sources, local_embedder)
        lookup.update(sources)
        lookup.mark_turn_done()
        if not number:
            lookup.fill_few_notes(8)
        await lookup.close()
    assert not started


def test_only_one_process_makes_vectors(home):
    path = home / "index.db"
    with lock_path(path).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not start_vector_process(path, Sources())


def test_the_sources_of_the_process_are_those_of_the_session(tmp_path):
    sources = Sources(None, (MemoryFolder("repo", "/a b", tmp_path / "é"),))
    assert _decode(_encode(sources)) == sources


@needs_weights
@pytest.mark.parametrize("notes", [5, 300])
def test_a_turn_makes_few_vectors_of_an_import(tmp_path, notes):
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "facts.md").write_text("".join(f"- fact {number}\n" for number in range(notes)))
    sources = Sources(memories=(MemoryFolder("user", "", memory),))
    lookup = Lookup(tmp_path / "index.db", lambda: sources, Counting)
    lookup.update(sources)
    lookup.fill_few_notes(8)
    assert missing(lookup.search().index) == (0 if notes == 5 else notes)


def test_without_a_vector_in_the_index_a_search_imports_no_numpy(home):
    code = (
        "import sys; from pathlib import Path\nfrom ouro.memory.index import Index, Search,"
        " local_embedder, Vectors\nindex = Index(Path(sys.argv[1])); vectors = Vectors(index,"
        " local_embedder())\nassert not Search(index, vectors).find('parser') and not"
        " vectors.fill(); assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(home / "index.db")], check=True)


@pytest.mark.timeout(60)
def test_vectors_of_an_index_that_was_removed_are_not_made_again_and_again(tmp_path):
    path = tmp_path / "index.db"
    made = Index(path)
    with made.writing() as database:
        session = IndexedSession(0, "one", "one", "")
        save_session(database, session)
        add_words(database, session, 1, "user", "2026-11-28", "the parser is slow")
        save_session(database, session)
    made.close()
    index, embedder = Index(path), Counting()
    vectors = Vectors(index, embedder)
    with index.reading():
        pass  # it has opened the file
    for file in tmp_path.glob("index.db*"):
        file.unlink()
    vectors.fill_all()
    assert len(embedder.asked) == 1
    index.close()


@pytest.mark.timeout(60)
def test_vectors_end_if_what_is_written_is_not_what_is_read(tmp_path):
    index, embedder = Index(tmp_path / "index.db"), Counting()
    with index.writing() as database:
        session = IndexedSession(0, "one", "one", "")
        save_session(database, session)
        add_words(database, session, 1, "user", "2026-11-28", "the parser is slow")
        save_session(database, session)
    vectors = Vectors(index, embedder)
    with index.reading() as database:
        database.execute("BEGIN")  # as after the removal of the log of a file that is open
        database.execute("SELECT count(*) FROM messages").fetchone()
    vectors.fill_all()
    with index.reading() as database:
        database.execute("COMMIT")
    assert not vectors.are_missing()
    assert set(embedder.asked) == {"the parser is slow"}
    index.close()
