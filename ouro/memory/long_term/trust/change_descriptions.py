"""Changes of memory in words: their lines, a summary in one line, and the event that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from ouro.display import Diff, Display, FileChange
from ouro.events import CoreChanged
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.utils.late_pattern import late_pattern
from ouro.utils.line_changes import line_changes
from ouro.utils.text import clean, cut, escape_invisible

_MAX_SUBJECT = 200
"""Maximum characters of a summary of edits."""
_MAX_EDIT_SUMMARY = 100
"""Maximum characters of its text about one file."""
MAX_SHOWN = 50
"""Files whose changes an event shows; it counts the others."""
_SHOWN_ID_CHARACTERS = 12
"""Characters of a note id that are shown in a line."""
_LINE_MARKS = late_pattern(r"\s*(?:(?:#{1,6}|[-*+])\s+)*")
"""The marks of a heading or list item at the start of a line."""


def changed_lines(edit: FileEdit, *, named: bool) -> list[str]:
    """The changes of a file, as lines to show: the removed lines with `-`, then the added ones with
    `+`; for a note as `_changed_lines_of_note` makes them. If `named`, the file's name comes first.
    """
    old_lines = (edit.before or "").splitlines()
    new_lines = (edit.after or "").splitlines()
    title = [edit.name] if named else []
    if is_note_name(edit.name):
        return [*title, *_changed_lines_of_note(old_lines, new_lines)]
    removed, added = [], []
    for start, end, new_start, new_end in line_changes(old_lines, new_lines):
        removed += [f"- {line}" for line in old_lines[start:end]]
        added += [f"+ {line}" for line in new_lines[new_start:new_end]]
    return [*title, *removed, *added]


def _changed_lines_of_note(old_lines: list[str], new_lines: list[str]) -> list[str]:
    """The changes of a note, as lines to show: the lines that are gone from its text, with `-`; its
    whole present text, with `+`; and in one line its new and changed fields.
    """
    old_body, new_body = _note_body(old_lines), _note_body(new_lines)
    changes = [f"- {line}" for line in old_body if line not in new_body and line.strip()]
    changes += [f"+ {line}" for line in new_body if line.strip()]
    front_matter = new_lines[: len(new_lines) - len(new_body)]
    fields = front_matter[1:-1]  # without the lines `---`
    changed_fields = [
        line.strip() for line in fields if line not in set(old_lines) and line.strip()
    ]
    if changed_fields:
        changes.append(f"  ({' · '.join(changed_fields)})")
    return changes


def subject_of(edits: Iterable[FileEdit]) -> str:
    """The edits in one line, each as `preferences.md: + Answer in German`, cut if it is too long;
    `Nothing` if there are none.
    """
    first_edits = islice(edits, _MAX_SUBJECT // len("a.md: -"))  # more would not be visible
    return cut("; ".join(map(_summarize_edit, first_edits)), _MAX_SUBJECT) or "Nothing"


def hide_secrets(
    edits: Sequence[FileEdit], secret_in: Callable[[str], str]
) -> tuple[FileEdit, ...]:
    """The edits with the kind of a secret instead of each new line that holds one; empty if there
    is no secret. `secret_in` returns the kind of secret in a text, or nothing.
    """
    # One search for all: most edits hold none.
    if not secret_in("\n".join(edit.after or "" for edit in edits)):
        return ()
    return tuple(_hide_secrets_of_edit(edit, secret_in) for edit in edits)


def _hide_secrets_of_edit(edit: FileEdit, secret_in: Callable[[str], str]) -> FileEdit:
    kind = secret_in(edit.after or "")
    if not kind:
        return edit
    lines = []
    for line in (edit.after or "").splitlines():
        kind_in_line = secret_in(line)
        lines.append(f"(a secret: {clean(kind_in_line)})" if kind_in_line else line)
    text = "\n".join(lines)
    if secret_in(text):  # it has several lines
        text = f"(a secret: {clean(kind)})"
    return FileEdit(edit.name, edit.before, f"{text}\n")


def change_of(
    scope: Scope,
    edits: Sequence[FileEdit],
    origin: str,
    *,
    undo: str = "",
    proposal: str = "",
    files: int = 0,
) -> CoreChanged:
    """The event that shows the edits; only the first `MAX_SHOWN` if there are more. Invisible
    characters are written out. Of a note's file only the text is shown.

    Args:
        undo: the commit to undo; empty if there is none.
        proposal: the id of the proposal, if the change is pending; else empty.
        files: how many files have changed, if `edits` are only the first of them.
    """
    shown_changes = tuple(
        FileChange(
            edit.name,
            edit.before and escape_invisible(edit.before),
            edit.after and escape_invisible(edit.after),
        )
        for edit in map(_without_front_matter, edits[:MAX_SHOWN])
    )
    count = max(files, len(edits))
    subject = subject_of(edits) + (f" ({count:,} files)" if count > MAX_SHOWN else "")
    display = Display(f"{scope}: {subject}", Diff(shown_changes))
    return CoreChanged(
        scope,
        origin,  # type: ignore[arg-type]
        summary=subject,
        display=display,
        undo=undo,
        proposal=proposal,
    )


def _note_body(lines: list[str]) -> list[str]:
    """The lines of a note's text, without its front matter; all lines if it has none."""
    has_front_matter = lines[:1] == ["---"] and "---" in lines[1:]
    if not has_front_matter:
        return lines[:]
    return lines[lines.index("---", 1) + 1 :]


def _text_only_in(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that are not in `others`, without list marks and signs of headings; blank lines are
    left out.
    """
    other_lines = set(others)
    new_lines = [line for line in lines if line not in other_lines and line.strip()]
    return [_LINE_MARKS.sub("", line, count=1).strip() for line in new_lines]


def _summarize_edit(edit: FileEdit) -> str:
    """An edit in one line: the file, or the start of the note's id; its first new line, or its
    first removed line if it has no new one; and how many more such lines there are.
    """
    name = edit.name
    old_lines = (edit.before or "").splitlines()
    new_lines = (edit.after or "").splitlines()
    if is_note_name(name):
        shown_end = name.find("mem_") + _SHOWN_ID_CHARACTERS  # `archive/` before the id stays
        name = name.removesuffix(".md")[:shown_end]
        old_lines, new_lines = _note_body(old_lines), _note_body(new_lines)
    removed, added = _text_only_in(old_lines, new_lines), _text_only_in(new_lines, old_lines)
    lines, sign = (added, "+") if added else (removed, "-")
    first_line = f"{sign} {lines[0]}" if lines else "no words changed"
    more_lines = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{name}: {cut(escape_invisible(first_line), _MAX_EDIT_SUMMARY)}{more_lines}"


def _without_front_matter(edit: FileEdit) -> FileEdit:
    """The edit of a note without its front matter; the whole edit if only the front matter has
    changed.
    """
    if not is_note_name(edit.name):
        return edit
    texts = (edit.before, edit.after)
    before, after = (
        None if text is None else "\n".join(_note_body(text.splitlines())) for text in texts
    )
    return edit if before == after else FileEdit(edit.name, before, after)
