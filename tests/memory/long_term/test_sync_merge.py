import pytest
from properties import given, st

from ouro.memory.long_term.notes.note import Edge, Note, note_text, parse_note
from ouro.memory.long_term.sync_merge import MergedFiles, merge_file, merge_lines

BASE = "# Preferences\n\n- Tabs.\n- Answer in German.\n"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a", "a", "b", "b"),
        ("a", "b", "a", "b"),
        ("a", "b", "b", "b"),
        (None, None, "b", "b"),
        (None, "b", None, "b"),
        ("a", None, "a", None),
        ("a", "a", None, None),
        ("a", None, None, None),
    ],
)
def test_change_of_one_side_is_taken(base, ours, theirs, merged):
    assert merge_file("facts.md", base, ours, theirs) == MergedFiles({"facts.md": merged})


def test_note_changed_on_one_side_and_removed_on_the_other_is_kept_and_reported():
    told = "mem_00000001.md was changed here and removed there: it stays"
    assert merge_file("mem_00000001.md", "a", "b", None) == MergedFiles(
        {"mem_00000001.md": "b"}, (told,)
    )
    told = "mem_00000001.md was changed there and removed here: it stays"
    assert merge_file("mem_00000001.md", "a", None, "b") == MergedFiles(
        {"mem_00000001.md": "b"}, (told,)
    )


def test_core_file_emptied_here_keeps_only_lines_added_there():
    base, more = "- Tea.\n- Oslo.\n", "- Tea.\n- Oslo.\n- Python.\n"
    assert (
        merge_file("facts.md", base, None, more)
        == merge_file("facts.md", base, more, None)
        == MergedFiles({"facts.md": "- Python.\n"})
    )
    assert merge_file("facts.md", base, None, "- Tea.\n") == MergedFiles({"facts.md": None})


def test_added_lines_are_united_and_removed_ones_dropped():
    ours = BASE.replace("- Tabs.\n", "") + "- Mine.\n"
    theirs = BASE + "- Theirs.\n"

    assert (
        merge_lines(BASE, ours, theirs)
        == "# Preferences\n\n- Answer in German.\n- Theirs.\n- Mine.\n"
    )


def test_line_changed_on_both_sides_is_kept_in_both_versions():
    assert (
        merge_lines("- Tabs.\n", "- Two blanks.\n", "- Four blanks.\n")
        == "- Four blanks.\n- Two blanks.\n"
    )


def test_line_added_on_both_sides_is_kept_once():
    assert merge_lines("", "- Tea.\n", "- Tea.\n- Coffee.\n") == "- Tea.\n- Coffee.\n"


LINES = st.lists(st.sampled_from([f"- {letter}" for letter in "abcdefgh"]), unique=True, max_size=8)


@given(LINES, LINES, LINES)
def test_no_added_line_is_lost_and_none_invented(base, ours, theirs):
    merged = merge_lines(*map("\n".join, (base, ours, theirs))).splitlines()

    added = (set(ours) | set(theirs)) - set(base)
    assert added <= set(merged) <= set(base) | set(ours) | set(theirs)
    assert (set(base) & set(ours) & set(theirs)) <= set(merged)


@given(LINES, LINES, LINES)
def test_merge_gives_the_same_lines_on_both_machines(base, ours, theirs):
    here = merge_lines(*map("\n".join, (base, ours, theirs)))
    there = merge_lines(*map("\n".join, (base, theirs, ours)))
    assert sorted(here.splitlines()) == sorted(there.splitlines())


def note(text: str, at: str, **fields) -> str:
    return note_text(Note(id="mem_00000001", text=text, updated_at=at, **fields))


def test_conflicting_note_keeps_the_later_version_and_a_copy():
    early, late = (
        note("Row locks.", "2026-11-20T00:00:00Z"),
        note("No locks.", "2026-11-21T00:00:00Z"),
    )

    for ours, theirs in ((early, late), (late, early)):
        merged = merge_file("mem_00000001.md", note("Locks.", ""), ours, theirs)

        (_, text), (other_name, other) = merged.texts.items()
        assert text == late
        beside = parse_note(other_name, other).note
        assert (beside.text, beside.related) == (
            "Row locks.",
            (Edge("mem_00000001", "contradicts"),),
        )
        assert "was changed on both sides" in merged.conflicts[0]


def test_note_confirmed_on_both_sides_stays_one():
    ours = note(
        "Locks.", "2026-11-20T00:00:00Z", confidence=0.9, confirmed_at="2026-11-20T00:00:00Z"
    )
    theirs = note(
        "Locks.", "2026-11-21T00:00:00Z", confidence=0.7, confirmed_at="2026-11-21T00:00:00Z"
    )

    merged = merge_file("mem_00000001.md", None, ours, theirs)

    found = parse_note("mem_00000001.md", merged.texts["mem_00000001.md"]).note
    assert (found.confidence, found.confirmed_at, len(merged.texts)) == (
        0.9,
        "2026-11-21T00:00:00Z",
        1,
    )
    assert merged.conflicts == ()
