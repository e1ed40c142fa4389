"""What a statement does to what is remembered, as a model answers one question at a time."""

import json

import pytest

from ouro.memory.long_term.capture.operations import OperationLimits
from ouro.memory.long_term.capture.small_model import read_statement
from ouro.memory.long_term.capture.statement_questions import (
    MAX_NEAR,
    ask_if_still_holds,
    ask_scope,
    find_effect_by_model,
    is_parallel,
    rank_near,
)
from ouro.memory.long_term.notes.note import Note


async def find_replaced(ask, statement, near):
    """The index of the entry that a statement replaces; None if it replaces none."""
    effect = await find_effect_by_model(ask, statement, near)
    return effect.entry_index if effect and effect.verb == "supersede" else None


def subjects(first, second):
    async def ask(messages, schema=None):
        assert schema
        return json.dumps({"first": first, "second": second})

    return ask


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("who cuts release branches", "who cuts the release branches", True),
        ("state management", "state management in the frontend", True),
        ("closing time of the shop", "the time of closing of a shop", True),
        ("language of the commits", "format of the commits", False),
        ("owner of billing", "owner of search", False),
        ("backend", "backend language", False),
        ("", "", False),
    ],
)
async def test_statement_replaces_only_what_has_the_same_subject(first, second, is_same):
    found = await find_replaced(subjects(first, second), "Priya cuts them", ["Jonas did"])
    assert (found == 0) is is_same


async def test_unusable_answer_and_an_addition_replace_nothing():
    async def ask(messages, schema=None):
        return "I cannot say."

    assert await find_replaced(ask, "The port is 1", ["The port is 2"]) is None
    same = subjects("port", "port")
    assert await find_replaced(same, "The port is also 1", ["The port is 2"]) is None


@pytest.mark.parametrize(
    ("first", "second", "parallel"),
    [
        ("Lena owns billing", "Omar owns search.", True),
        ("Lena owns billing, ask her first", "Omar owns search, by the way", True),
        ("The API listens on 8080", "The API listens on 9090", False),
        ("Die Kunden liegen in Rom", "Die Kosten liegen in Bonn", False),
        ("Staging is heron", "Production is crane", True),
        ("The jobs run on Celery", "We replaced Celery on Monday", False),
        ("Our guides are kept in Word", "The guides were moved to Notion", False),
        ("Les magasins ferment le lundi", "Finalement les magasins ferment mardi", False),
        ("Задачи хранятся на Redis", "Мы заменили Redis на Valkey", False),
        ("Анна отвечает за кассу", "Борис отвечает за склад", True),
        ("预发是 heron", "生产是 crane", True),
        ("数据库用 PostgreSQL,部署在 Docker 里", "数据库已经从 PostgreSQL 切换到 MySQL 了", False),
    ],
)
def test_sentences_of_one_form_that_differ_in_subject_and_value_both_hold(first, second, parallel):
    assert is_parallel(first, second) is parallel


def one_subject_and_state(now, asked=None):
    """A model that names one subject for all statements, and says what holds `now`."""

    async def ask(messages, schema=None):
        is_state = "now" in schema["properties"]
        if is_state and asked is not None:
            asked.append(messages[-1].text)
        return json.dumps({"now": now} if is_state else {"first": "payments", "second": "payments"})

    return ask


async def test_second_fact_on_one_subject_replaces_nothing_if_the_first_still_holds():
    old = "Payments go through Mollie, at most 500 euros"
    both = one_subject_and_state("Payments go through Mollie, at most 500 euros; in Asia by Omise.")
    assert await find_replaced(both, "For Asia payments go by Omise", [old]) is None
    changed = one_subject_and_state("Payments go through Mollie, at most 900 euros.")
    assert await find_replaced(changed, "Payments are 900 euros at most", [old]) == 0


@pytest.mark.parametrize(
    "said", ["Payments aren't with Mollie, Omise has them", "Mollie is gone, payments use Omise"]
)
async def test_statement_that_denies_is_not_compared_with_what_holds(said):
    asked = []
    ask = one_subject_and_state(f"Payments go through Mollie; {said}", asked)
    assert await find_replaced(ask, said, ["Payments go through Mollie"]) == 0
    assert asked == []


async def test_unusable_state_does_not_keep_an_entry():
    async def ask(messages, schema=None):
        return "I cannot say."

    assert not await ask_if_still_holds(ask, "The port is 1", "The port is 2")


def test_entries_with_common_words_are_compared_first_and_few():
    texts = [f"Fact number {number}" for number in range(20)] + ["The deploy script is ship.sh"]
    near = rank_near("The deploy script moved", texts)
    assert (near[0], len(near)) == (20, MAX_NEAR)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("Tickets are in Jira", "We switched to Linear in March"),
        ("Die Tickets liegen in Jira", "Wir sind im März auf Linear umgestiegen"),
        ("Les tickets sont dans Jira", "On est passés à Linear en mars"),
        ("Los tickets están en Jira", "Hemos pasado a Linear en marzo"),
        ("Metrics are sent to Datadog", "Datadog got too slow, metrics go to Prometheus"),
    ],
)
async def test_finished_change_replaces_what_a_model_only_joins_with_it(old, said):
    """A small model often writes both statements as what holds now."""
    is_finished_change = "too" not in said
    model = one_subject_and_state(f"{old}; {said}" if is_finished_change else said)
    assert await find_replaced(model, said, [old]) == 0


async def test_scope_is_the_answer_of_the_model_or_unknown():
    async def ask(messages, schema=None):
        return {"a": '{"about": "user"}', "b": '{"about": "project"}'}.get(messages[-1].text, "?")

    assert [await ask_scope(ask, text) for text in "abc"] == ["user", "repo", None]


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("Los informes se exportan en CSV.", "Los informes ya no se exportan en CSV."),
        ("Usamos o Redis nas sessões", "não usamos mais o Redis nas sessões"),
        ("Сборка идёт на Jenkins.", "Сборка идёт на GitHub Actions, а не на Jenkins."),
        ("बिलिंग सेवा MySQL का उपयोग करती है।", "बिलिंग सेवा अब MySQL का उपयोग नहीं करती है।"),
    ],
)
async def test_denial_that_the_model_only_repeats_replaces_what_it_denies(old, said):
    repeated = one_subject_and_state(said)
    assert await find_replaced(repeated, said, [old]) == 0


async def test_exception_with_all_words_of_a_rule_does_not_replace_it_if_both_are_named():
    rule, exception = "Wir liefern am Montag", "Im August: wir liefern am Montag nach Rom"
    both = one_subject_and_state("Wir liefern am Montag; im August liefern wir nach Rom")
    assert await find_replaced(both, exception, [rule]) is None


@pytest.mark.parametrize(
    "said",
    ["Commits werden künftig per squash gesammelt", "Bundan sonra commit squash ile toplanır"],
)
async def test_what_holds_from_now_on_replaces_what_is_on_its_subject(said):
    old = "Commits werden per rebase gesammelt"
    both = one_subject_and_state(f"{old}; {said}")
    assert await find_replaced(both, said, [old]) == 0


async def test_denial_is_not_compared_with_texts_that_share_no_word_if_others_do():
    """A model of 1.5 billion parameters named one subject for `tests` and `design team`."""
    near = ["Los tests se ejecutan con pytest.", "El equipo de diseño trabaja en Bilbao."]

    async def ask(messages, schema=None):
        asked = messages[-1].text
        if "now" in schema["properties"]:
            return json.dumps({"now": "Los tests se lanzan con nox."})
        if "Bilbao" in asked:
            return json.dumps({"first": "team of design", "second": "team of design"})
        return json.dumps({"first": "pytest", "second": "nox"})

    said = "Los tests ya no van con pytest, ahora se lanzan con nox."
    assert await find_replaced(ask, said, near) == 0
    assert await find_replaced(ask, said, near[::-1]) == 1


def answers(now, *, part="all", new="9000", values=("", "")):
    """A model that names one subject for all statements, and answers the other questions so."""

    async def ask(messages, schema=None):
        fields = schema["properties"]
        if "now" in fields:
            return json.dumps({"now": now})
        if "part" in fields:
            return json.dumps({"new": new, "part": part})
        first, second = values if messages[-1].text.startswith("Subject: ") else ("port", "port")
        return json.dumps({"first": first, "second": second})

    return ask


OLD = "The port is 8000"


@pytest.mark.parametrize(
    ("said", "part", "verb"),
    [
        ("On the test machines the port is 9000", "test machines", None),
        ("Auf den Testrechnern ist der Port jetzt 9000", "Testrechnern", None),
        ("On the test machines the port is not 8000", "the test machines", None),
        ("The port is 9000", "all", "supersede"),
        ("The port is 9000 on all machines", "all", "supersede"),
        ("The port is 9000", "the port", "supersede"),
        ("The port is 9000", "9000", "supersede"),  # what is new
        ("From now on the port is 9000", "from now on", "supersede"),
        ("The port has moved to 9000", "has moved", "supersede"),
        ("The port is 9000", "the port of the guests", "supersede"),  # nothing that was said
    ],
)
async def test_statement_about_a_part_of_what_an_entry_says_replaces_nothing(said, part, verb):
    """The model writes only the later statement as what holds."""
    effect = await find_effect_by_model(answers(said, part=part), said, [OLD])
    assert (effect.verb if effect else None) == verb


@pytest.mark.parametrize(
    ("old", "said", "values", "verb"),
    [
        ("The port is 8000", "We listen on 8000", ("8000", "8000"), "confirm"),
        ("The port is 8000", "We listen on 9000", ("8000", "9000"), None),
        ("The port is open", "We listen on 9000", ("open", "open"), None),  # a new number
        ("Never use the port", "Use the port", ("use", "use"), None),
        ("The port is 8000", "The port is 8000, ask Ida for it", ("8000", "8000"), None),
        ("Ports belong to Jon", "Jonathan owns the ports", ("Jon", "Jonathan"), "supersede"),
        ("Ports belong to Jo", "Joseph owns the ports", ("Jo", "Joseph"), None),
        ("Ports are in Vault", "We keep ports in Hall Vault", ("Vault", "Hall Vault"), None),
        ("The port is 8000", "We listen on 8000", ("", ""), None),
    ],
)
async def test_statement_with_the_value_of_an_entry_repeats_it(old, said, values, verb):
    """The model writes both sentences as what holds."""
    effect = await find_effect_by_model(answers(f"{old}; {said}", values=values), said, [old])
    assert (effect.verb if effect else None) == verb


async def test_repeated_statement_confirms_the_note():
    old = Note(id="mem_00000001", text="Our database is Postgres", scope="repo")
    said = "We run Postgres as a database"
    ask = answers(f"{old.text}; {said}", values=("Postgres", "Postgres"))
    limits = OperationLimits([old], {"facts": "repo"}, ("user", "repo"))
    operation = await read_statement(ask, said, limits)
    assert (operation.verb, operation.target) == ("confirm", old.id)
