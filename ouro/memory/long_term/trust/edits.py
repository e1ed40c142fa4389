"""Edits of memory files in words, and digests of core texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from ouro.display import Diff, Display, FileChange
from ouro.events import CoreChanged
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.notes.note import is_note_name
from ouro.utils.text import escaped

_SUBJECT, _WORDS = 200, 100
"""Characters of a whole summary, and of what it says about one file."""
_ID = 12
"""Characters of a note id in a line."""


def subject_of(edits: Iterable[FileEdit]) -> str:
    """The edits in one line: `preferences.md: + Answer in German`."""
    return _cut("; ".join(map(_summary, edits)), _SUBJECT) or "Nothing"


def change_of(
    scope: Scope, edits: Sequence[FileEdit], origin: str, *, undo: str = "", proposal: str = ""
) -> CoreChanged:
    """The event of the edits, with invisible characters written out; of a note, its text."""
    shown = tuple(
        FileChange(name, before and escaped(before), after and escaped(after))
        for name, before, after in map(_without_front_matter, edits)
    )
    display = Display(f"{scope}: {subject_of(edits)}", Diff(shown))
    return CoreChanged(scope, origin, subject_of(edits), display, undo, proposal)  # type: ignore[arg-type]


def digest(texts: Mapping[str, str]) -> str:
    parts = [f"{name}\0{texts[name]}" for name in sorted(texts)]
    return "~" + hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:12]


def words_of(lines: list[str]) -> list[str]:
    """The text of a note, without its front matter."""
    end = lines.index("---", 1) if lines[:1] == ["---"] and "---" in lines[1:] else -1
    return lines[end + 1 :]


def _summary(edit: FileEdit) -> str:
    name, old, new = edit.name, _lines(edit.before), _lines(edit.after)
    if is_note_name(edit.name.rpartition("/")[2]):
        name = name.removesuffix(".md")[: name.find("mem_") + _ID]
        old, new = words_of(old), words_of(new)
    before, after = set(old), set(new)
    gone = [line.lstrip("-*# ").strip() for line in old if line not in after and line.strip()]
    come = [line.lstrip("-*# ").strip() for line in new if line not in before and line.strip()]
    words = [f"+ {come[0]}"] if come else [f"- {gone[0]}"] if gone else ["no words changed"]
    more = len(come) + (0 if come else len(gone)) - 1
    return f"{name}: {_cut(escaped(words[0]), _WORDS)}{f' and {more} more' if more > 0 else ''}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _without_front_matter(edit: FileEdit) -> tuple[str, str | None, str | None]:
    """A note by its text, unless only its front matter has changed."""
    if not is_note_name(edit.name.rpartition("/")[2]):
        return edit.name, edit.before, edit.after
    before, after = (None if text is None else "\n".join(words_of(_lines(text))) for text in (edit.before, edit.after))
    return (edit.name, edit.before, edit.after) if before == after else (edit.name, before, after)


def _lines(text: str | None) -> list[str]:
    return (text or "").splitlines()


def edit_of(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> FileEdit:
    """The edit of a category between two states of the core."""
    return FileEdit(f"{name}.md", before.get(name), after.get(name))
