"""Capture with a small model: what rules decide, and what the model is asked."""

import json

import pytest

from ouro.errors import ModelError
from ouro.llm import ModelSpec
from ouro.memory.long_term import categories_with
from ouro.memory.long_term.capture.operations import OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations, statements_in
from ouro.memory.long_term.notes.note import Note

LOCKS = Note(
    id="mem_00000001", text="The job queue is Redis.", scope="repo", category="project-conventions"
)


class Small:
    """Returns `answers` in order, then "fact" for every sentence. `may_keep` is its answer to
    whether a sentence may be kept.
    """

    def __init__(self, *answers, may_keep="yes", topic="work", about="person"):
        self.answers, self.asked, self.may_keep = list(answers), [], may_keep
        self.topic, self.about = topic, about

    async def __call__(self, messages, schema=None):
        assert schema
        if '"answer"' in messages[-2].text:
            return json.dumps({"answer": self.may_keep})
        if '"topic"' in messages[-2].text:
            return json.dumps({"topic": self.topic})
        if '"about"' in messages[-2].text and "thing" in str(schema):
            return json.dumps({"about": self.about})
        self.asked.append(messages[-1].text)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return json.dumps({"kind": "fact"})


async def capture(said, model=None, shown=()):
    limits = OperationLimits(shown, categories_with({}), ("user", "repo"))
    spoken = [Spoken(1, "user", said), Spoken(2, "assistant", "We use Perl.")]
    return await find_operations(model or Small(), spoken, limits)


@pytest.mark.parametrize(
    "said",
    [
"thanks, looks good", "no, thanks a lot", "What is the port of staging?", "ok", "Can you rename it to twice", "You forgot the import.",
        "This function is too long.",
        # hypotheses, jokes, quotations and statements of others, with words that the rules look for
        "Imagine we decided on Redis for this.", "Maybe we should always use UTC.", "Let's say we use Kafka.",
        "I wonder whether we should always squash.", "If we used Redis, it would never wait.",
        "Just kidding, we always deploy on Fridays.", "haha we should always push to prod",
        "The README says: always run make lint.", 'It says "never use sudo" in the docs.',
        "CONTRIBUTING.md says that we use npm.", "According to the wiki, we use Jenkins.", "He said we always use npm.",
        "My colleague Tom prefers tabs.", "Tom prefers tabs.", "In the other project we use yarn.",
        # valid only for the current task, with words that the rules look for
        "For now we use SQLite.", "Just this once never run the formatter.", "For this task, always use print.",
        "I prefer the second option.", "I prefer option B.", "never mind, leave it", "No, the other one.",
        "No, not that file.", "Actually undo that.",
        "The server is running in another window.", "The container is still starting.", "The dev server is up.",
        "now it works", "It works now.", "It never works on the first try.", "you replaced the wrong line",
    ],
)  # fmt: skip
async def test_questions_and_small_talk_are_not_sent_to_the_model(said):
    model = Small()
    assert await capture(said, model) == ()
    assert model.asked == []


@pytest.mark.parametrize(
    ("said", "text", "scope", "category"),
    [
        ("No, that is wrong: the basket must never hold a negative price.",
         "The basket must never hold a negative price.", "repo", "corrections"),
        ("My name is Ada and I work in Zurich.", "My name is Ada and I work in Zurich.", "user", "user-facts"),
        ("Always answer in German.", "Always answer in German.", "user", "coding-preferences"),
        ("Run the tests with tox, never alone.", "Run the tests with tox, never alone.", "repo", "corrections"),
        ("Run it. We decided on SQLite because it runs offline.", "We decided on SQLite because it runs offline.",
         "repo", "architectural-decisions"),
    ],
)  # fmt: skip
async def test_statements_decided_by_rules_need_no_model(said, text, scope, category):
    model = Small()
    [operation] = await capture(said, model)
    assert (operation.text, operation.scope, operation.category) == (text, scope, category)
    assert (operation.verb, operation.source, model.asked) == ("add", "user", [])


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("no, use pnpm", "Use pnpm"), ("Use a dict instead.", "Use a dict instead."),
        ("stop adding comments to every line", "stop adding comments to every line"),
        ("Actually the tests need a running Postgres.", "The tests need a running Postgres."),
        ("Tom always uses vim.", "Tom always uses vim."),
        ("No emojis in changelogs, ever.", "No emojis in changelogs, ever."),
    ],
)  # fmt: skip
async def test_model_decides_about_uncertain_statements(said, note):
    model = Small()
    assert [operation.text for operation in await capture(said, model)] == [note]
    assert model.asked[0].casefold().startswith(f"the sentence: {note}".casefold())
    assert await capture(said, Small('{"kind": "problem"}')) == ()


async def test_private_statement_is_not_kept_if_the_model_says_so():
    said = "Sarah from QA is on sick leave, so be patient with her."
    assert await capture(said, Small(may_keep="no")) == ()
    for answer in ("yes", "no such answer"):
        [operation] = await capture(said, Small(may_keep=answer))
        assert operation.text == said


@pytest.mark.parametrize(
    ("topic", "is_kept"),
    [
        ("health", False),
        ("family", False),
        ("salary", False),
        ("home", False),
        ("belief", False),
        ("work", True),
        ("no such topic", True),
    ],
)
async def test_statement_with_a_private_topic_is_not_kept_although_the_model_allows_it(
    topic, is_kept
):
    said = "Our tester Ivan has diabetes and leaves at four."
    assert bool(await capture(said, Small(topic=topic))) is is_kept


async def test_private_topic_that_is_not_about_one_person_is_kept():
    said = "Health checks of the gateway run every ten seconds."
    assert await capture(said, Small(topic="health", about="thing"))
    for about in ("person", "no such answer"):
        assert not await capture(said, Small(topic="health", about=about))


async def test_last_clause_that_lasts_is_a_statement():
    said = "those long logs drive me mad, write only errors from now on"
    assert [operation.text for operation in await capture(said, Small())] == [said]
    assert await capture(said, Small('{"kind": "problem"}')) == ()
    model = Small()
    assert await capture("those long logs drive me mad", model) == ()
    assert model.asked == []


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("we cache in redis", "The sentence: We cache in redis."),
        ("缓存放在 redis 里", "The sentence: 缓存放在 redis 里。"),
        ("The port is 8417!", "The sentence: The port is 8417!"),
    ],
)
async def test_model_is_asked_about_a_whole_sentence(said, asked):
    model = Small()
    [operation] = await capture(said, model)
    assert (model.asked[0], operation.text) == (asked, said)


@pytest.mark.parametrize(
    "said",
    [
        "Run the tests, then fix the basket.",
        "please add a test for the empty basket",
        "I'm looking at the basket now.",
        "I think it is off by one.",
        "The facet labels of this plot overlap.",
        "The FIFO loses a word when it is full.",
        "The build is red since this morning.",
        "One word, no tools.",
        "Answer in one short line, no tools.",
        "The last commit changed the login.",
        "The page takes ten seconds to load.",
        "No, run it again.",
        "Actually let me do it.",
        "I changed my mind, leave it as it is.",
        "Write a test for a user who never logs in.",
        "I always forget how to rebase.",
        "The test never finishes.",
        "I don't remember the command.",
        'Translate "we always ship on time" to German.',
    ],
)
async def test_tasks_and_faults_labelled_by_the_model_are_not_saved(said):
    model = Small('{"kind": "problem"}')
    assert await capture(said, model) == ()
    assert len(model.asked) == 1


@pytest.mark.parametrize("answer", ['{"kind": "status"}', '{"kind": "song"}', "I cannot say."])
async def test_statement_not_labelled_lasting_is_not_saved(answer):
    assert await capture("The staging server listens on port 8417.", Small(answer)) == ()


class Labels:
    """Labels each sentence by the first of `kinds` whose key is in it, else "fact"; any sentence
    may be kept, unless it has "secretly".
    """

    def __init__(self, **kinds):
        self.kinds = kinds

    async def __call__(self, messages, schema=None):
        said = messages[-1].text
        if '"answer"' in messages[-2].text:
            return json.dumps({"answer": "no" if "secretly" in said else "yes"})
        kinds = [kind for word, kind in self.kinds.items() if word in said]
        return json.dumps({"kind": (kinds or ["fact"])[0]})


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Ida took over the shop, please update OWNERS.", ["Ida took over the shop"]),
        ("We ship one file, so update the script.", ["We ship one file"]),
        ("Update the list; die Preise sind netto.", ["die Preise sind netto."]),
        ("Update the list - the parser is slow, it breaks.", ["the parser is slow, it breaks."]),
        ("Update the list, it is far too long.", []),
        ("Update the list, the page is broken.", []),
        ("Update the list, Ida secretly looks for another job.", []),
    ],
)
async def test_task_beside_a_statement_does_not_hide_it(said, kept):
    model = Labels(Update="task", update="task", broken="problem")
    assert [operation.text for operation in await capture(said, model)] == kept


async def test_sentence_with_a_task_is_left_out_although_it_begins_without_a_verb():
    said = "After this one, copy the result into list.txt and then stop."
    model = Labels(**{"list.txt": "task", "After this one.": "status"})
    assert await capture(said, model) == ()


class Orders:
    """Labels every sentence as `kind`; those with one of `orders` tell the assistant to do something.
    The scope of each is `about`.
    """

    def __init__(self, *orders, kind="task", about="project"):
        self.orders, self.kind, self.about = orders, kind, about

    async def __call__(self, messages, schema=None):
        said = messages[-1].text
        if "who" in schema["properties"]:
            is_order = any(word in said for word in self.orders)
            return json.dumps({"who": "you", "kind": "order" if is_order else "tells"})
        return json.dumps({"kind": self.kind, "answer": "yes", "about": self.about})


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Les tests se lancent avec make test", ["Les tests se lancent avec make test"]),
        ("Lance les tests de la caisse", []),
        ("Hi, I'm Sana and I look after the shop", ["Hi, I'm Sana and I look after the shop"]),
        ("Os testes rodam com npm, rode as migrações", ["Os testes rodam com npm"]),
    ],
)
async def test_what_is_labelled_as_a_task_and_is_no_order_is_kept(said, kept):
    model = Orders("Lance les", "Rode as")
    assert [operation.text for operation in await capture(said, model)] == kept


@pytest.mark.parametrize(
    ("said", "about", "scope", "category"),
    [
        ("Prefiro respostas curtas", "user", "user", "coding-preferences"),
        ("Ich bevorzuge kurze Funktionen", "project", "user", "coding-preferences"),
        ("Wolimy krótkie nazwy tabel", "project", "repo", "project-conventions"),
        ("We prefer tabs over blanks", "user", "repo", "project-conventions"),
    ],
)
async def test_a_preference_is_the_users_if_rules_or_the_model_say_so(said, about, scope, category):
    [kept] = await capture(said, Orders(kind="preference", about=about))
    assert (kept.text, kept.scope, kept.category) == (said, scope, category)


@pytest.mark.parametrize(
    ("said", "verb"),
    [
        ("Greta is the one to ask about fares", "add"),
        ("I'm Pablo and I look after the fares now", "supersede"),
    ],
)
async def test_only_what_is_of_the_user_replaces_what_they_said_of_themselves(said, verb):
    text = "I'm Pablo and I look after the bookings"
    known = Note(id="mem_00000002", text=text, scope="user", category="user-facts")

    async def ask(messages, schema=None):
        """Names one subject for both, and says that only the later statement holds."""
        answer = {"kind": "fact", "answer": "yes", "about": "thing", "new": said, "part": "all"}
        subjects = {"first": "person in charge", "second": "person in charge"}
        return json.dumps({**answer, **subjects, "now": said, "note": "", "same": False})

    [found] = await capture(said, ask, shown=[known])
    assert found.verb == verb


async def test_list_of_tools_is_one_clause():
    model = Labels(ruff="task")
    [kept] = await capture("We use ruff, mypy, pytest", model)
    assert kept.text == "We use ruff, mypy, pytest"


async def test_non_imperatives_ignore_task_label_and_corrections_skip_it():
    labelled = '{"kind": "task"}'
    assert len(await capture("The port of staging is 8417.", Small(labelled))) == 1
    assert await capture("Begin with login.html.", Small(labelled)) == ()
    model = Small('{"kind": "status"}')
    [corrected] = await capture("The job queue is RabbitMQ now.", model, shown=[LOCKS])
    assert (corrected.verb, model.asked) == ("supersede", [])


async def test_two_sentences_about_one_note_replace_it_once():
    said = "Redis is gone from the job queue. The job queue is RabbitMQ now."
    operations = await capture(said, shown=[LOCKS])
    assert [(operation.verb, operation.target) for operation in operations] == [
        ("supersede", LOCKS.id),
        ("add", ""),
    ]


async def test_statement_supersedes_confirms_or_relates_to_a_shown_note():
    [replaced] = await capture("RabbitMQ replaces Redis for the job queue.", shown=[LOCKS])
    assert (replaced.verb, replaced.target, replaced.category) == (
        "supersede",
        LOCKS.id,
        "project-conventions",
    )
    [same] = await capture("The job queue is Redis", shown=[LOCKS])
    assert (same.verb, same.target) == ("confirm", LOCKS.id)
    [beside] = await capture(
        "Job queue data is backed up.", Small('{"kind": "fact"}', '{"same": true}'), shown=[LOCKS]
    )
    assert (beside.verb, beside.related) == ("add", (LOCKS.id,))
    [again] = await capture(
        "The queue of jobs is Redis.", Small('{"kind": "fact"}', '{"same": true}'), shown=[LOCKS]
    )
    assert (again.verb, again.target) == ("confirm", LOCKS.id)


async def test_rule_is_never_merged_with_another_rule():
    known = Note(
        id="mem_00000002",
        text="Never commit generated files.",
        scope="repo",
        category="corrections",
    )
    [added] = await capture(
        "Never commit secrets.", Small('{"same": true, "relation": "same"}'), shown=[known]
    )
    assert (added.verb, added.text, added.related) == ("add", "Never commit secrets.", (known.id,))


async def test_model_error_is_raised():
    with pytest.raises(ModelError):
        await capture("The staging server listens on port 8417.", Small(ModelError("gone")))


@pytest.mark.parametrize(
    "said",
    [
        "Always open the docs in another tab.", "The API is running on port 8417.",
        "Always answer in one sentence.", "We decided on C#, because Lua is too slow.",
        "Ok, always answer in German.", "Great, we use pnpm.",
        "Exq failed often, so we use Oban now.", "Answer in German.", "A match has at most 64 players.",
    ],
)  # fmt: skip
def test_lasting_statement_that_names_a_fault_is_found(said):
    assert list(statements_in(said)) == [said]


EDIT = 'util.py [{"old_text": "return a - b", "new_text": "return a + b"}]'


@pytest.mark.parametrize(
    ("said", "done", "stated"),
    [
        ("Use the edit tool to make it return a + b.", EDIT, []),
        ("Use the staging database for demos.", "", ["Use the staging database for demos."]),
        ("Use British spelling.", EDIT, ["Use British spelling."]),
        ("Hide the sidebar before every demo.", EDIT, ["Hide the sidebar before every demo."]),
        ("Functions return a + b in util.py.", EDIT, []),
        ("The sum is one too small.", EDIT, []),
        ("The sum is taken by Priya.", "", ["The sum is taken by Priya."]),
        ("Correct it. The bank counts in cents.", EDIT, ["The bank counts in cents."]),
        ("Responses are camelCase.", EDIT, ["Responses are camelCase."]),
    ],
)
def test_statement_already_carried_out_is_left_out(said, done, stated):
    assert list(statements_in(said, done)) == stated


def test_statements_are_sentences():
    text = "Thanks. The port of staging is 8417. Good. When do we deploy. When I ask, be short."
    assert list(statements_in(text)) == ["The port of staging is 8417.", "When I ask, be short."]


@pytest.mark.parametrize(
    ("said", "stated"),
    [
        (
            "From now on answer in German, what time is it in Tokyo?",
            ["From now on answer in German"],
        ),
        ("Antworte mir immer auf Deutsch, wie spät ist es?", ["Antworte mir immer auf Deutsch"]),
        ("以后请用中文回答，现在几点？", ["以后请用中文回答"]),
        ("Do we always use tabs, or spaces?", []),
        ("In utils.py, what does the parser do?", []),
        ("Please, could you never use sed here?", []),
    ],
)
def test_wish_before_a_question_is_a_statement_of_its_own(said, stated):
    assert list(statements_in(said)) == stated


@pytest.mark.parametrize(
    ("name", "is_small"),
    [("openai/qwen-coder-1.5b", True), ("ollama_chat/qwen3:8b", True), ("x/llama-70b", False), ("openai/gpt-5", False),
     ("ollama_chat/qwen3-coder:30b-a3b", False)],
)  # fmt: skip
def test_small_models_are_recognized_by_name(name, is_small):
    assert ModelSpec(name).is_small == is_small


@pytest.mark.parametrize(
    "said",
    [
        "Always use tabs. Wait, no, forget that.", "Ab jetzt immer Tabs. Ach nein, vergiss es.",
        "以后都用制表符。算了，保持原样。", "Draft a mail to the team: we always deploy on Mondays.",
        "Traduis : nous testons toujours avec Firefox.", "次の文を英語に訳して:常にテストを書く。",
        "The server is down right now.", "假设我们总是用 HTTP。",
    ],
)  # fmt: skip
def test_what_is_retracted_drafted_supposed_or_passing_is_no_statement_in_any_language(said):
    assert list(statements_in(said)) == []


async def test_statement_on_the_subject_that_the_model_names_replaces_the_earlier():
    subject = '{"first": "language of commits", "second": "the language of the commits"}'
    known = Note(id="mem_00000009", text="提交信息用英文写", scope="repo", category="corrections")
    model = Small('{"kind": "rule"}', subject, subject)
    [operation] = await capture("提交信息改成用中文写。", model, shown=[known])
    assert (operation.verb, operation.target) == ("supersede", known.id)


@pytest.mark.parametrize("other_subject", ["moving of the store", "price of the soup"])
async def test_subject_that_the_model_names_in_one_order_only_replaces_nothing(other_subject):
    subject = '{"first": "place of the soup", "second": "place of the soup"}'
    reverse = f'{{"first": "{other_subject}", "second": "place of the soup"}}'
    known = Note(id="mem_00000009", text="Soup stands in the kitchen", scope="repo")
    answers = ('{"kind": "fact"}', subject, reverse, '{"about": "project"}')
    [operation] = await capture("The cart was moved to Pinia.", Small(*answers), shown=[known])
    assert operation.verb == "add"


async def test_model_places_a_statement_that_no_rule_places():
    model = Small('{"kind": "rule"}', '{"about": "project"}')
    [operation] = await capture("Run the migrations before the server starts.", model)
    assert operation.scope == "repo"


class Compared:
    """A small model for which every sentence is a fact, and all texts with a word of `subjects` in
    common are on one subject; only the later one of two holds.
    """

    def __init__(self, *subjects, completed=""):
        self.subjects, self.completed = subjects, completed

    async def __call__(self, messages, schema=None):
        fields, said = schema["properties"], messages[-1].text
        if "note" in fields:
            return json.dumps({"note": self.completed})
        if "first" in fields:
            pair = [line.partition(": ")[2] for line in said.splitlines()]
            names = [next((word for word in self.subjects if word in text), text) for text in pair]
            return json.dumps({"first": f"the {names[0]} name", "second": f"the {names[1]} name"})
        if "now" in fields:
            return json.dumps({"now": said.splitlines()[-1].partition(": ")[2]})
        answers = {"kind": "fact", "label": "own", "about": "project", "answer": "yes"}
        return json.dumps({**answers, "same": False})


async def capture_messages(model, *texts, shown=()):
    limits = OperationLimits(shown, categories_with({}), ("user", "repo"))
    spoken = [Spoken(number, "user", said) for number, said in enumerate(texts, 1)]
    return await find_operations(model, spoken, limits)


@pytest.mark.parametrize(
    ("earlier", "later", "subject"),
    [
        ("El servidor de fotos se llama garza.", "El servidor ya es otro, se llama grulla.", "servidor"),
        ("Die Fotos liegen im Ordner alt.", "Die Fotos liegen seit Juni im Ordner neu.", "Fotos"),
        ("Our parser is written in Perl.", "Actually our parser is written in Zig now, not Perl.", "parser"),
        ("照片存放在东京机房。", "照片已经搬到大阪机房。", "照片"),
    ],
)  # fmt: skip
async def test_correction_replaces_a_statement_that_is_not_written_yet(earlier, later, subject):
    operations = await capture_messages(Compared(subject), earlier, "What is a list?", later)
    assert [operation.verb for operation in operations] == ["add"]
    assert earlier not in [operation.text for operation in operations]
    assert operations[0].related == ()


async def test_correction_of_a_correction_replaces_the_note_once():
    texts = ("Die Warteschlange heißt seit heute früh Nord.", "Die Warteschlange heißt nun Süd.")
    note = Note(id="mem_00000001", text="Die Warteschlange heißt West.", scope="repo")
    [operation] = await capture_messages(Compared("Warteschlange"), *texts, shown=[note])
    assert (operation.verb, operation.target, operation.text) == ("supersede", note.id, texts[1])


async def test_correction_without_a_subject_completes_a_statement_that_is_not_written_yet():
    completed = "The photo server listens on port 8417."
    [operation] = await capture_messages(
        Compared(completed=completed),
        "The photo server listens on port 9000.",
        "No, that was last year. It listens on 8417.",
    )
    assert (operation.verb, operation.text, operation.target) == ("add", completed, "")


async def test_statements_on_two_subjects_are_both_added():
    texts = ("Die Fotos liegen in Köln.", "Die Filme liegen in Bonn.")
    operations = await capture_messages(Compared("Fotos", "Filme"), *texts)
    assert [operation.text for operation in operations] == list(texts)


async def test_project_fact_is_left_out_while_the_memory_of_the_project_is_off():
    limits = OperationLimits((), categories_with({}), ("user",))
    texts = ("Die Pakete liegen im Lager Ost.", "I prefer tabs.")
    spoken = [Spoken(number, "user", said) for number, said in enumerate(texts, 1)]
    operations = await find_operations(Compared(), spoken, limits)
    assert [operation.text for operation in operations] == ["I prefer tabs."]


@pytest.mark.parametrize(
    "said",
    [
        "Correct the spelling in this line: 'The gate opnes at nine.'",
        "Übersetze das ins Englische, bitte: „Der Laden öffnet um neun.“",
        "Corrige la frase, por favor: «La tienda habre a las nueve.»",
    ],
)
async def test_quotation_in_a_task_is_no_statement(said):
    task, fact = json.dumps({"kind": "task"}), json.dumps({"kind": "fact"})

    class Labels(Small):
        """Labels what is not quoted as a task, and a quotation as a fact."""

        async def __call__(self, messages, schema=None):
            fields = schema["properties"]
            if "kind" not in fields:
                return json.dumps({"answer": "yes", "label": "own", "about": "project"})
            sentence = messages[-1].text.removeprefix("The sentence: ")
            return fact if sentence[0] in "'„«" else task

    assert await capture(said, Labels()) == ()
