"""X17: quotes, dashes and spaces of a changed line that the change leaves stay as they were."""

from __future__ import annotations

import pytest

from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch, ApplyPatchArgs
from ouro.tools.edit import Edit, EditArgs, Replacement
from ouro.tools.files_seen import FilesSeen

CASES = (
    # what the file has, what the model writes for it, its new text, what the file has then
    ("\u201cHello\u201d, said Anna\u2019s son.", '"Hello", said Anna\'s son.',
     '"Hello", said Anna\'s daughter.', "\u201cHello\u201d, said Anna\u2019s daughter."),
    ("Pages 3\u20137 \u2014 see below", "Pages 3-7 - see below", "Pages 3-9 - see below",
     "Pages 3\u20139 \u2014 see below"),
    ("Prix\u00a0: 20\u202f\u20ac l\u2019unit\u00e9", "Prix : 20 \u20ac l'unit\u00e9", "Prix : 25 \u20ac l'unit\u00e9",
     "Prix\u00a0: 25\u202f\u20ac l\u2019unit\u00e9"),
    ("\u201eGuten Tag\u201c \u2013 sagte er", '"Guten Tag" - sagte er', '"Guten Abend" - sagte er',
     "\u201eGuten Abend\u201c \u2013 sagte er"),
    ("it\u2019s one", "it's one", "it's 'one'", "it\u2019s 'one'"),
    ("    a\u3000\u201cb\u201d c", '    a "b" c', '    a "b" d', "    a\u3000\u201cb\u201d d"),
    ("x\u00a0=\u00a01; // \u2018old\u2019", "x = 1; // 'old'", "x = 2; // 'old'", "x\u00a0=\u00a02; // \u2018old\u2019"),
    ("don\u2019t \u2026 won\u2019t", "don't \u2026 won't", "don't \u2026 can't and won't",
     "don\u2019t \u2026 can't and won\u2019t"),
)  # fmt: skip


@pytest.fixture
def seen(tmp_path):
    return FilesSeen(Workspace(tmp_path))


@pytest.mark.parametrize(("own", "old", "new", "expected"), CASES)
@pytest.mark.parametrize("tool", ["edit", "apply_patch"])
def test_x17_characters_outside_of_the_change_stay(tmp_path, seen, tool, own, old, new, expected):
    path = tmp_path / "a.txt"
    path.write_text(f"first\n{own}\n\u2018last\u2019\n")
    seen.note(path, path.read_bytes())

    if tool == "edit":
        edits = [Replacement(f"first\n{old}\n'last'\n", f"first\n{new}\n'last'\n")]
        Edit(seen)._change(EditArgs(str(path), edits), "write", [])
    else:
        patch = f"*** Begin Patch\n*** Update File: a.txt\n first\n-{old}\n+{new}\n 'last'\n*** End Patch"
        ApplyPatch(seen)._change(ApplyPatchArgs(patch), "write", [])

    assert path.read_text() == f"first\n{expected}\n\u2018last\u2019\n"


def test_x17_added_and_removed_lines_beside_it_are_as_the_model_wrote_them(tmp_path, seen):
    path = tmp_path / "a.txt"
    path.write_text("\u201cone\u201d is here\n\u201ctwo\u201d is here\n")
    seen.note(path, path.read_bytes())
    edit = Replacement('"one" is here\n"two" is here\n', '"one" is there\n"new" = \'1\'\n')

    Edit(seen)._change(EditArgs(str(path), [edit]), "write", [])

    assert path.read_text() == "\u201cone\u201d is there\n\"new\" = '1'\n"


def test_x17_quotes_that_the_model_changes_are_changed(tmp_path, seen):
    path = tmp_path / "a.txt"
    path.write_text("say \u201chello\u201d\n")
    seen.note(path, path.read_bytes())
    edit = Replacement("say \u201chello\u201d", 'say "hello"')

    Edit(seen)._change(EditArgs(str(path), [edit]), "write", [])

    assert path.read_text() == 'say "hello"\n'
