"""On real stores: a correction is delivered wherever the statement that it corrects is."""

import itertools
import random
from types import SimpleNamespace

import pytest
from fakes.knowledge import editor_of

from ouro.memory.long_term import all_entries, find_entry, remember_text
from ouro.memory.long_term.supersession import find_on_subject, find_replaced


def entries(*texts):
    return [SimpleNamespace(id=str(number), text=text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("said", "before", "replaced"),
    [
        (
            "We changed our mind: RabbitMQ replaces Redis for the job queue",
            "We use Redis for the job queue",
            True,
        ),
        (
            "The tests run with nox now",
            "The tests of this project run with `pytest -q -x`, never with tox",
            True,
        ),
        ("No, answer in English", "Always answer in German", True),
        ("No, my name is Grace", "My name is Ada", True),
        ("We no longer use Redis", "We use Redis for the job queue", True),
        (
            "Deploys go through Jenkins, not GitHub Actions",
            "Deploys go through GitHub Actions",
            True,
        ),
        ("JSON was too slow, so services talk gRPC", "Services talk JSON to each other", True),
        ("JSON was too slow today", "Services talk JSON to each other", False),
        ("Use pytest, not tox", "Never run tests with tox", False),
        ("The API must never return 500 instead of 400", "The API must return JSON", False),
        ("We never deploy on Fridays", "We deploy on Tuesdays", False),
        ("Postgres holds the orders", "Postgres holds the users", False),
        ("The job queue is on RabbitMQ now", "We use Redis for the job queue", True),
        ("Snapshots are stored in UTC now", "Dates are stored in UTC", False),
        ("The staging port is 8081 now", "The staging port is 8080", True),
        ("Don't squash commits", "Always squash commits", True),
        ("Always use npm", "Never use npm", True),
        ("We dont use npm anymore", "We use npm", True),
        ("Never squash commits", "Don't squash commits", False),
        ("Don't squash commits of dependabot", "Always squash commits", False),
        ("The tests now also run on Windows", "We run the tests with tox", False),
        ("The admin API listens on port 9090 now", "The API listens on port 8080", False),
        (
            "The mobile app is now written in React Native",
            "The frontend is written in React",
            False,
        ),
        ("Actually the tests need a running Postgres", "The tests run with pytest -q", False),
        ("No, the tests need a running Postgres", "The tests run with pytest -q", False),
        (
            "Actually the staging server has only 2 GB of memory",
            "The staging server is in Frankfurt",
            False,
        ),
        ("Actually tests of the API live in api/tests", "Tests live in tests/", False),
        ("No, packages must be pinned", "Install packages with npm", False),
        ("The worker now takes two queues", "The worker takes one queue", True),
        ("The linter is now ruff", "The linter is flake8", True),
        ("Actually my name is Eva", "My name is Ada", True),
        ("We deploy with Kustomize now", "We deploy with Helm", True),
        ("We now deploy to Ohio", "We deploy with Helm", False),
        (
            "We replaced SQLite with Postgres, as two write now",
            "We decided on SQLite because it runs offline",
            True,
        ),
        ("RabbitMQ replaces Redis for the job queue", "We use Redis for the cache", False),
        ("no, use pnpm", "Use npm for everything", True),
        ("No, use vitest for the frontend", "Jest runs the tests of the backend", False),
        ("No, use pnpm", "Never use npm", False),
        ("I prefer spaces now", "I prefer tabs", True),
        (
            "They asked for more, the ECG is sampled at 500 Hz now",
            "The ECG is sampled at 250 Hz",
            True,
        ),
        (
            "We added a cache, the admin API listens on 9090 now",
            "The API listens on port 8080",
            False,
        ),
        (
            "We ripped out Hilt last sprint, Koin injects now",
            "We use Hilt for dependency injection",
            True,
        ),
        ("Actually Tom owns billing now", "Priya owns billing", True),
        ("No, prices are integers in tenths of a cent", "Prices are decimals in euros", True),
        ("No, prices are rounded up", "Prices are stored as decimals", False),
        ("No, releases are on Mondays", "Releases are on Fridays", True),
        ("Releases are cut by Eva from now on", "Releases are cut on Fridays", False),
        ("Commit messages must name a ticket from now on", "Commit messages are in German", False),
        ("Commit messages are short from now on", "Commit messages are in German", False),
        ("Commit messages are in English from now on", "Commit messages are in German", True),
        ("Commit messages are short, from now on", "Commit messages are in German", False),
        ("Commit messages are in English, from now on", "Commit messages are in German", True),
        ("Reviews take two days now", "Reviews need two people", False),
        ("Reviews need one person now", "Reviews need two people", True),
        ("The public API is versioned now", "The public API is camelCase", False),
        ("The main branch is called main now", "The main branch is master", True),
        ("Please stop squashing commits", "Always squash commits", True),
        ("Tests are slow now", "Tests are in tests/", False),
        ("We use Redis for caching now", "We use Redis for jobs", False),
        (
            "The payment service has a changelog now",
            "The payment service has a codename Falcon",
            False,
        ),
        (
            "The payment service has a codename Falcon now",
            "The payment service has a changelog",
            False,
        ),
        (
            "The payment service has the codename Kite now",
            "The payment service has the codename Falcon",
            True,
        ),
        ("The worker has two queues now", "The worker has one queue", True),
    ],
)
def test_statement_replaces_only_what_it_contradicts(said, before, replaced):
    others = ("Black formats the code", "The cache lives in memory")
    assert [entry.text for entry in find_replaced(said, entries(*others, before))] == (
        [before] if replaced else []
    )


def test_ambiguous_statement_replaces_nothing_but_duplicates_together():
    said = "The server now listens on 9090"
    assert (
        find_replaced(
            said, entries("The server listens on 8080", "The server listens on localhost")
        )
        == []
    )
    both = entries("The server listens on 8080", "The server listens on 8080.")
    assert find_replaced(said, both) == both
    assert find_on_subject("Black formats code", both) == []


@pytest.fixture
def editor(home, repository):
    return editor_of(home / ".ouro", repository)


def test_correction_replaces_lines_and_notes_in_one_undoable_commit(editor):
    remember_text(editor, "We use Redis for the job queue")
    note = remember_text(editor, "queue.py: we use Redis for the job queue", "repo")
    assert note.entry.kind == "core", "it is on the subject of a core line"
    editor.write("repo", {"facts.md": "- The job queue in queue.py is Redis\n"}, "By hand")
    before = {entry.text for entry in all_entries(editor)}
    commits = len(editor.scope("repo").store.log())
    done = remember_text(editor, "We changed our mind: RabbitMQ replaces Redis for the job queue")
    assert [entry.text for entry in all_entries(editor)] == [
        "RabbitMQ replaces Redis for the job queue"
    ]
    assert {entry.text for entry in done.replaced} == before
    assert len(editor.scope("repo").store.log()) == commits + 1
    editor.scope("repo").undo(done.undo, editor.moment)
    assert {entry.text for entry in all_entries(editor)} == before


def test_corrected_note_is_archived_and_the_correction_is_in_the_core(editor):
    old = remember_text(editor, "Rates are in rates.py and read from the bank")
    assert old.entry.kind == "note"
    done = remember_text(editor, "No, rates are read from a file now")
    assert (done.entry.kind, [entry.id for entry in done.replaced]) == ("core", [old.entry.id])
    assert find_entry(editor, old.entry.id).archived


def test_a_long_correction_of_a_core_line_stays_in_the_core(editor):
    remember_text(editor, "We use Redis for the job queue")
    long = (
        "RabbitMQ replaces Redis for the job queue, "
        + "because it keeps jobs when the machine restarts, " * 5
    )
    assert remember_text(editor, long).entry.kind == "core"
    assert len(all_entries(editor)) == 1


def test_project_preference_does_not_remove_a_user_preference(editor):
    remember_text(editor, "I prefer tabs for indentation")
    done = remember_text(editor, "repo: no, we prefer spaces for indentation")
    assert (done.entry.scope, done.replaced) == ("repo", ())
    assert len(all_entries(editor)) == 2


def test_notes_on_the_same_subject_are_linked(editor):
    first = remember_text(editor, "api.py retries a payment three times")
    second = remember_text(editor, "api.py logs each retry of a payment")
    edges = editor.notebook.find(second.entry.id).note.related
    assert [(edge.id, edge.relationship) for edge in edges] == [(first.entry.id, "relates-to")]


SUBJECTS = (
    "the job queue",
    "the nightly backup",
    "payments",
    "the tests in api.py",
    "`load_rates`",
)
EARLIER = (
    "We use Redis for {}",
    "{} runs on Redis",
    "Always use Redis with {}",
    "{}: Redis, because it is fast",
)
LATER = (
    "We changed our mind: RabbitMQ replaces Redis for {}", "No, {} runs on RabbitMQ", "From now on {} uses RabbitMQ",
    "For {} use RabbitMQ instead of Redis", "{} is on RabbitMQ now", "Use RabbitMQ for {}, it survives a restart",
    "We moved {} from Redis to RabbitMQ",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_later_statement_is_delivered_wherever_the_earlier_was(seed, home, repository):
    draw = random.Random(seed)
    editor = editor_of(home / ".ouro", repository)
    pairs = draw.sample(list(itertools.product(EARLIER, LATER, SUBJECTS)), 6)
    for number, (earlier, later, subject) in enumerate(pairs):
        subject = f"{subject} of service {number}xy"
        first = remember_text(editor, earlier.format(subject), "repo")
        second = remember_text(editor, later.format(subject), "repo")
        in_use = {entry.id: entry for entry in all_entries(editor)}
        left = [entry for entry in in_use.values() if entry.text == first.entry.text]
        if left and left[0].kind == "core":
            assert second.entry.kind == "core"
        elif left and second.entry.kind == "note":
            assert left[0].id in [
                edge.id for edge in editor.notebook.find(second.entry.id).note.related
            ]
