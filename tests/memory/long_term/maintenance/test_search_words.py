"""Search words: a model writes them once for each note; they are in the file, and a search finds the
note by them.
"""

import asyncio
import json

import pytest
from fakes.knowledge import Conversation
from msgspec.structs import replace

from ouro.memory.long_term import (
    MemoryMaintenance,
    Notebook,
    NoteWorkers,
    SearchWordsWriter,
    find_languages,
)
from ouro.memory.long_term.notes.note import Note, note_text

FIRST = Note(id="mem_00000001", scope="repo", text="Die Nachtsicherung läuft um drei.")
SECOND = Note(id="mem_00000002", scope="repo", text="Der Warenkorb wird nie gecacht.")
ANSWER = json.dumps(
    {
        "notes": [
            {"number": 1, "search_words": ["shopping cart", "basket"]},
            {"number": 2, "search_words": ["backup time", "nightly job"]},
        ]
    }
)


class Bench:
    """Real notes in a real repository memory, and a model with one answer."""

    def __init__(self, home, project):
        self.talk = Conversation(home, project, answer="x").connect()
        stores = {name: scope.store for name, scope in self.talk.scopes.items()}
        self.book = Notebook(stores, untrusted=lambda scope: self.talk.scopes[scope].untrusted)
        self.stores = stores
        self.asked = []

    def keep(self, *notes):
        texts = {note.file_name: note_text(note) for note in notes}
        self.stores["repo"].save_and_commit(texts, "Add", {"Ouro-Origin": "capture"})

    async def write(self, answer=ANSWER, **facts):
        return await self.writer(answer, **facts).write()

    def writer(self, answer=ANSWER, *, is_small=False, languages=()):
        async def ask(messages, schema=None):
            self.asked.append(messages[-1].text)
            self.instructions = messages[0].text
            return answer() if callable(answer) else answer

        return SearchWordsWriter(
            ask=ask,
            notebook=self.book,
            repositories={name: store.repository for name, store in self.stores.items()},
            mark="memory-1",
            run_under_lock=self.talk.manager.run_under_lock,
            is_small=lambda: is_small,
            languages=lambda: languages,
        )

    def words(self, note):
        return self.book.find(note.id).note.search_words


@pytest.fixture
def bench(home, repository):
    bench = Bench(home, repository)
    bench.keep(
        replace(FIRST, updated_at="2026-11-01T10:00:00Z"),
        replace(SECOND, updated_at="2026-11-02T10:00:00Z"),
    )
    return bench


async def test_search_words_of_old_notes_are_written_in_one_commit_and_only_once(bench):
    written = await bench.write()
    assert {change.note.id for change in written} == {FIRST.id, SECOND.id}
    assert len({change.commit for change in written}) == 1
    assert bench.words(FIRST) == ("backup time", "nightly job")
    assert bench.words(SECOND) == ("shopping cart", "basket")
    assert bench.book.find(FIRST.id).note.updated_at == "2026-11-01T10:00:00Z"
    assert await bench.write() == []
    assert len(bench.asked) == 1


async def test_note_without_search_words_is_not_asked_about_again(bench):
    assert await bench.write('{"notes": []}') == []
    assert await bench.write() == []
    assert len(bench.asked) == 1


async def test_note_that_changes_while_the_model_answers_keeps_its_new_text(bench):
    def change_and_answer():
        bench.keep(replace(SECOND, text="Der Warenkorb wird eine Minute gecacht."))
        return ANSWER

    await bench.write(change_and_answer)
    assert bench.words(FIRST) == ("backup time", "nightly job")
    assert bench.words(SECOND) == ()
    assert bench.book.find(SECOND.id).note.text == "Der Warenkorb wird eine Minute gecacht."


async def test_small_model_writes_no_search_words(bench):
    assert await bench.write(is_small=True) == []
    assert bench.asked == []


async def test_notes_get_search_words_in_the_language_of_the_user_once(bench):
    english = replace(
        FIRST,
        id="mem_00000003",
        text="The basket is never cached.",
        updated_at="2026-12-01T10:00:00Z",
    )
    bench.keep(english)
    words = {"notes": [{"number": 1, "search_words": ["panier", "cache"]}]}
    await bench.write(languages=["German"])
    assert "German" in bench.instructions
    assert "basket is never cached" in bench.asked[-1]
    for _ in range(2):
        await bench.write(json.dumps(words), languages=["French"])
    assert len(bench.asked) == 2
    assert set(bench.words(english)) >= {"panier", "cache"}
    assert "French" in bench.instructions


async def test_added_search_words_stay_beside_those_of_the_note(bench):
    described = replace(SECOND, search_words=("shopping cart",), updated_at="2026-12-01T10:00:00Z")
    bench.keep(described)
    words = {"notes": [{"number": 1, "search_words": ["panier", "shopping cart"]}]}
    await bench.write(json.dumps(words), languages=["French"])
    assert bench.words(SECOND) == ("shopping cart", "panier")


async def test_note_in_the_language_of_the_user_is_not_asked_about_again(bench):
    await bench.write()
    assert await bench.write(languages=["German"]) == []
    assert len(bench.asked) == 1


async def test_language_of_an_earlier_session_stays_in_use(bench):
    await bench.write(languages=["French"])
    bench.keep(replace(FIRST, id="mem_00000003", text="Das Lager schließt um acht."))
    await bench.write()
    assert "French" in bench.instructions


class NothingDue:
    """A consolidator and a crystallizer with nothing to do."""

    def is_due(self):
        return False


async def test_a_session_asks_five_times_at_most_after_its_first_turn(home, repository, tmp_path):
    bench = Bench(home, repository)
    bench.keep(*(replace(FIRST, id=f"mem_{number:08x}") for number in range(110)))
    words_of_notes = [
        {"number": number, "search_words": ["nightly job"]} for number in range(1, 21)
    ]
    writer = bench.writer(json.dumps({"notes": words_of_notes}))
    maintenance = MemoryMaintenance(
        make_summaries=None,
        make=lambda: NoteWorkers(NothingDue(), NothingDue(), writer),
        lock=tmp_path / "maintenance.lock",
        price=lambda _tokens: None,
        usage=None,
        channel=bench.talk,
        is_automatic=True,
        is_new=True,
        silent=False,
    )
    for _ in range(2):
        maintenance.turn_ended()
        await asyncio.gather(*bench.talk.tasks)
    assert len(bench.asked) == 5
    assert sum(not bench.words(file.note) for file in bench.book.all()) == 10


def test_languages_of_the_user_are_those_of_the_messages_that_tell_it():
    messages = [
        "Wie werden die Rechnungen gerundet?",
        "Fix the parser of the invoices",
        "ok",
        "Welche Version haben wir jetzt?",
        "где лежат наши резервные копии?",
        "サーバーはどこですか",
        "单元测试怎么写?",
    ]
    assert find_languages(messages) == ["German", "Russian", "Japanese", "Chinese"]
