"""benchmarks.public_sets: REALTALK and BEAM in their public formats, by invented samples."""

import json

import pytest

from benchmarks.public_sets import by_bm25, main, read_beam, read_realtalk, recall_by_category

REALTALK = {
    "name": {"speaker_1": "Ana", "speaker_2": "Ben"},
    "session_1_date_time": "04.01.2024, 09:00:00",
    "events_session_1": {"Ana": [], "Ben": []},
    "session_1": [
        {"clean_text": "I bought a red kayak.", "speaker": "Ana", "dia_id": "D1:1",
         "date_time": "04.01.2024, 09:00:00"},
        {"clean_text": "Nice! My sister plays the oboe.", "speaker": "Ben", "dia_id": "D1:2",
         "date_time": "04.01.2024, 09:02:11"},
        {"clean_text": "", "speaker": "Ben", "dia_id": "D1:3", "date_time": "04.01.2024, 09:02:12"},
    ],
    "session_2": [
        {"clean_text": "We paddled to the island.", "speaker": "Ana", "dia_id": "D2:1",
         "date_time": "11.01.2024, 18:00:00"},
    ],
    "qa": [
        {"question": "Which colour has the kayak of Ana?", "answer": "red", "evidence": ["D1:1"],
         "category": 1},
        {"question": "Who plays the oboe?", "answer": "Ben's sister", "evidence": ["D1:2"],
         "category": 3},
        {"question": "What was in the picture?", "answer": "?", "evidence": [], "category": 3},
    ],
}  # fmt: skip

CHAT = [
    {
        "batch_number": 1,
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-15-2024", "index": "1,1",
                 "content": "My first sprint ends on March 29. ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "I noted the sprint."},
            ],
            [{"role": "user", "id": 2, "content": "Always show versions of libraries. ->-> 1,2"}],
        ],
    }
]  # fmt: skip
PROBES = {
    "abstention": [{"question": "Who is my dentist?", "rubric": []}],
    "information_extraction": [
        {"question": "When does my first sprint end?", "source_chat_ids": [0]}
    ],
    "knowledge_update": [
        {"question": "Which sprint?",
         "source_chat_ids": {"original_info": [0], "updated_info": [1]}}
    ],
}  # fmt: skip


@pytest.fixture
def realtalk(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "Chat_1_Ana_Ben.json").write_text(json.dumps(REALTALK))
    (tmp_path / "data" / "other.json").write_text("[]")
    return tmp_path / "data"


@pytest.fixture
def beam(tmp_path):
    folder = tmp_path / "chats" / "100K" / "1"
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps(CHAT))
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(PROBES))
    return folder.parent


def test_a_conversation_of_realtalk_is_read_with_its_evidence(realtalk):
    [talk] = read_realtalk(realtalk)
    assert [(item.id, item.date, item.session) for item in talk.documents] == [
        ("D1:1", "2024-01-04", 1),
        ("D1:2", "2024-01-04", 1),
        ("D2:1", "2024-01-11", 2),
    ]
    assert [(item.category, item.evidence) for item in talk.questions] == [
        ("category 1", {"D1:1"}),
        ("category 3", {"D1:2"}),
    ]


def test_a_conversation_of_beam_is_read_with_its_evidence(beam):
    [talk] = read_beam(beam)
    assert [(item.id, item.text, item.date) for item in talk.documents] == [
        ("0", "My first sprint ends on March 29.", "2024-03-15"),
        ("1", "I noted the sprint.", "2024-03-15"),
        ("2", "Always show versions of libraries.", "2024-03-15"),
    ]
    assert [(item.category, item.evidence) for item in talk.questions] == [
        ("information_extraction", {"0"}),
        ("knowledge_update", {"0", "1"}),
    ]


def test_recall_is_the_share_of_the_evidence(beam):
    found = recall_by_category([*read_beam(beam)], lambda _talk: {"knowledge_update-0": ["1"]})
    assert found["knowledge_update"] == (1, {5: 0.5, 10: 0.5})
    assert found["all"] == (2, {5: 0.25, 10: 0.25})


def test_bm25_finds_rare_words_first(realtalk):
    [talk] = read_realtalk(realtalk)
    assert by_bm25(talk)["q1"][0] == "D1:2"


def test_the_table_has_a_row_for_each_category(realtalk, beam, capsys):
    assert main(["realtalk", str(realtalk)]) == 0
    assert main(["beam", str(beam)]) == 0
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [cells[:2] for cells in lines if len(cells) > 1] == [
        ["| category", "questions"],
        ["| category 1", "1"],
        ["| category 3", "1"],
        ["| all", "2"],
        ["| category", "questions"],
        ["| information_extraction", "1"],
        ["| knowledge_update", "1"],
        ["| all", "2"],
    ]
    assert {"words R@10", "BM25 R@5"} < {*lines[0]}


def test_a_folder_without_the_set_is_an_error(tmp_path, capsys):
    assert main(["beam", str(tmp_path)]) == 1
    assert "no conversation with questions of beam" in capsys.readouterr().err
