import json

import pytest
from properties import given, st

from ouro.memory.long_term.capture.operations import (
    MAX_OPERATIONS,
    MAX_SEARCH_WORDS,
    Operation,
    OperationLimits,
    read_operations,
)
from ouro.memory.long_term.notes.note import CATEGORIES, Note, Relation

SHOWN = [
    Note(id="mem_00000001", text="Tests run with pytest -q.", category="project-conventions"),
    Note(id="mem_00000002", text="Answers in German.", scope="user", category="coding-preferences"),
]
GROUND = OperationLimits(SHOWN, CATEGORIES, ("user", "repo"), "/repo")
ADD = {
    "op": "add",
    "text": "Use tabs.",
    "scope": "repo",
    "category": "project-conventions",
    "confidence": 0.9,
}
ADDED = Operation("add", "Use tabs.", "", "repo", "project-conventions", 0.9)


def done(answer, limits=GROUND):
    return read_operations(answer if isinstance(answer, str) else json.dumps(answer), limits)[0]


def reasons(answer, limits=GROUND):
    return [each.reason for each in read_operations(json.dumps(answer), limits)[1]]


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps([ADD]),
        json.dumps({"operations": [ADD]}),
        json.dumps({"result": ADD}),
        json.dumps(ADD),
        f"Here is what I found:\n```json\n{json.dumps([ADD], indent=2)}\n```\nAnything else?",
        f"<think>Hm, {{x}} …</think>\n{json.dumps(ADD)}",
        (
            '<think>Perhaps [{"op": "add", "text": "No.", "category":'
            f' "patterns"}}]?</think>\n{json.dumps([ADD])}'
        ),
        json.dumps([ADD]).replace("}]", ",}, ]"),
        json.dumps([ADD, ADD]),
        json.dumps([ADD])[:-1] + ', {"op": "add", "text": "cut in the mid',
        '{"operations": [' + json.dumps(ADD) + ', {"op": "add", "te',
        json.dumps(ADD) + "\n" + json.dumps({"op": "nothing"}),
        json.dumps(ADD) + "\n" + json.dumps({"op": "no-op"}),
        json.dumps({**ADD, "op": "adds_note"}),
        json.dumps({**ADD, "op": "ADD_NOTE"}),
        json.dumps(
            {key.title(): value.upper() if key == "op" else value for key, value in ADD.items()}
        ),
        json.dumps({"Operations": [{key.upper(): value for key, value in ADD.items()}]}),
        f'The person said "use tabs", so: {json.dumps([ADD])}',
        f"[\n  // said just now\n  {json.dumps(ADD)},\n]",
        json.dumps([ADD], indent=1).replace('"Use tabs."', '"Use\ntabs."'),
        json.dumps({**ADD, "operation": "create", "op": None}),
    ],
)
def test_operations_are_parsed_from_any_form(answer):
    assert done(answer) == (ADDED,)


@pytest.mark.parametrize(
    "answer",
    ["", "[]", "{}", "Nothing worth keeping.", '{"op": "nothing"}', "null", "{" * 5_000, "[[[{"],
)
def test_empty_or_invalid_answers_yield_no_operations(answer):
    assert read_operations(answer, GROUND) == ((), ())


@given(st.text())
def test_random_text_does_not_break_the_parser(answer):
    read_operations(answer, GROUND)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "op",
                        "text",
                        "target",
                        "scope",
                        "category",
                        "confidence",
                        "entities",
                        "relations",
                    ]
                ),
                each,
            )
        ),
    )
)
def test_random_json_does_not_break_the_parser(value):
    read_operations(json.dumps({"op": "add", "more": value}), GROUND)
    read_operations(json.dumps(value), GROUND)


@pytest.mark.parametrize("target", [1, "1", "[1]", "#1", "mem_00000001"])
def test_target_note_is_given_by_position_or_id(target):
    assert done([{"op": "supersede", "target": target, "text": "Tests run with tox."}]) == (
        Operation(
            "supersede",
            "Tests run with tox.",
            "mem_00000001",
            "repo",
            "project-conventions",
            entities=("tool:tox",),
        ),
    )


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            {"op": "supersede", "target": "mem_99999999", "text": "x"},
            "note `mem_99999999` was not shown",
        ),
        ({"op": "refine", "text": "x"}, "note `` was not shown"),
        ({"op": "confirm", "target": 9}, "note `9` was not shown"),
        ({**ADD, "text": " "}, "the text is empty, or a single word"),
        ({**ADD, "text": "服务"}, "the text is empty, or a single word"),
        ({**ADD, "text": "Deployment"}, "the text is empty, or a single word"),
        ({**ADD, "text": "x" * 601}, "the text has 601 characters (at most 600)"),
        ({**ADD, "category": "weather"}, "unknown category `weather`"),
        ({"op": "destroy", "target": 1}, "unknown operation `destroy`"),
    ],
)
def test_invalid_operation_is_refused_with_its_reason(operation, reason):
    assert (done([operation]), reasons([operation])) == ((), [reason])


def test_disabled_scope_is_refused():
    limits = OperationLimits(SHOWN, CATEGORIES, ("user",))
    assert reasons([ADD], limits) == ["the repo memory is off here"]


def test_repeated_statement_becomes_a_confirmation():
    again = Operation("confirm", target="mem_00000001", scope="repo")
    assert done([{**ADD, "text": "tests run with  pytest -q"}]) == (again,)
    assert done([{"op": "supersede", "target": 1, "text": "Tests run with pytest -q."}]) == (again,)
    assert done([{"op": "confirm", "target": 1}]) == (again,)


@pytest.mark.parametrize(
    ("said_by", "source"),
    [("user", "user"), ("Person", "user"), ("assistant", "assistant"), (7, "assistant")],
)
def test_said_by_sets_the_source(said_by, source):
    (operation,) = done([{**ADD, "said_by": said_by}])
    assert operation.source == source


def test_misspelt_category_maps_to_the_nearest_with_its_scope():
    (operation,) = done(
        [{"op": "add", "text": "Likes short answers.", "category": "Coding_Preference"}]
    )
    assert (operation.category, operation.scope) == ("coding-preferences", "user")


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        (0.5, 0.5),
        (90, 0.9),
        ("85%", 0.85),
        ("high", 0.9),
        (None, 0.8),
        ("very", 0.8),
        (-3, 0.1),
        (True, 0.8),
        ("nan", 0.8),
        pytest.param(10**400, 0.8, id="very large"),
    ],
)
def test_confidence_is_normalized(said, confidence):
    (operation,) = done([{**ADD, "confidence": said}])
    assert operation.confidence == confidence


def test_target_with_very_many_digits_is_refused():
    assert reasons([{"op": "confirm", "target": "9" * 5_000}]) == [
        f"note `{'9' * 60}` was not shown"
    ]


def test_entities_and_relations_are_normalized():
    (operation,) = done(
        [
            {
                **ADD,
                "text": "api.py is tested by tests/test_api.py.",
                "entities": ["File: ./api.py", "nonsense", 7, "/repo/api.py"],
                "relations": [
                    {
                        "from": "file:./api.py",
                        "rel": "Tested by",
                        "to": "cmd:pytest tests/test_api.py",
                    },
                    ["file:api.py", "is", "file:api.py"],
                    ["x"],
                ],
            }
        ]
    )
    assert operation.entities == ("file:api.py", "file:tests/test_api.py")
    assert operation.relations == (
        Relation("file:api.py", "tested_by", "cmd:pytest tests/test_api.py"),
    )


def test_too_many_operations_are_cut():
    answer = [{**ADD, "text": f"Thing {number}."} for number in range(20)]
    assert len(done(answer)) == MAX_OPERATIONS
    assert reasons(answer) == ["too many at once"] * 12


def test_control_characters_are_removed_from_the_text():
    (operation,) = done([{**ADD, "text": "Use\x1b[31m tabs\u202e.\n\nAlways."}])
    assert "\x1b" not in operation.text
    assert "\n" not in operation.text


def test_related_notes_must_have_been_shown():
    (operation,) = done([{**ADD, "related": [1, "9", "mem_00000001", {}, "[2]"]}])
    assert operation.related == tuple(note.id for note in SHOWN[:2])
    (operation,) = done([{"op": "refine", "target": 1, "text": "Also on Windows.", "related": [1]}])
    assert operation.related == ()


def test_search_words_are_read_as_a_list_or_with_commas_and_long_ones_are_left_out():
    too_long = "a whole sentence that is no name of the thing at all"
    named = ["night job", "night job", "Sicherung", too_long, 7, "", "30"]
    (operation,) = done([{**ADD, "search_words": named}])
    assert operation.search_words == ("night job", "Sicherung")
    (operation,) = done([{**ADD, "search_words": "night job, Sicherung"}])
    assert operation.search_words == ("night job", "Sicherung")
    (operation,) = done([{**ADD, "search_words": [f"word {n}" for n in range(40)]}])
    assert len(operation.search_words) == MAX_SEARCH_WORDS
    (operation,) = done([{**ADD, "search_words": {"no": "list"}}])
    assert operation.search_words == ()
