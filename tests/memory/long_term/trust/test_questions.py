"""The question about a change of memory is in plain words and hides nothing."""

from ouro.memory.long_term import FileEdit, Proposal
from ouro.memory.long_term.trust.proposals import question_about

NOTE = (
    "---\nid: mem_3f6c1e0b\ncategory: corrections\nentities: [file:api.py]\n---\napi.py must not"
    " import os.\n"
)


def test_question_about_a_core_line_shows_its_text_and_file():
    edit = FileEdit("preferences.md", "- Tabs.\n", "- Tabs.\n- Answer in German.\n")
    question = question_about(
        Proposal("a", "user", "outside", (edit,), "it was written outside of ouro")
    )
    assert question.text == "Remember this in all your projects?"
    assert question.details.splitlines() == [
        "Found in preferences.md of your memory, not yet approved: it was written outside of ouro.",
        "+ - Answer in German.",
    ]


def test_question_about_a_note_shows_its_text_and_all_fields():
    edit = FileEdit("archive/mem_3f6c1e0b.md", None, NOTE)
    question = question_about(
        Proposal("a", "repo", "agent", (edit,), "it is not in your words", ("web page",))
    )
    assert question.text == "Remember this in this project?"
    assert question.details.splitlines()[1:] == [
        "Read before it was written: web page.",
        "+ api.py must not import os.",
        "  (id: mem_3f6c1e0b · category: corrections · entities: [file:api.py])",
    ]
