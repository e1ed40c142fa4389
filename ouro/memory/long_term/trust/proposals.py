"""Changes of memory files in words, and Proposals: the pending ones, stored beside the history. They never expire."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal

import msgspec

from ouro.display import Diff, Display, FileChange, Question
from ouro.events import CoreChanged
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.notes.note import is_note_name
from ouro.utils.log import log
from ouro.utils.text import cut, escaped, line_changes

_NAME = "proposals"
MAX_SOURCES = 5
KEEP, LEAVE = "keep it", "leave it out"
_MAX_LINES = 40
_SUBJECT, _WORDS = 200, 100
"""Characters of a whole summary, and of what it says about one file."""
MAX_SHOWN = 50
"""Files whose changes an event shows; it counts the others."""
_ID = 12
"""Characters of a note id in a line."""


class Proposal(msgspec.Struct, frozen=True):
    id: str
    scope: Scope
    origin: Literal["agent", "outside"]
    """`agent`: the model wrote it; it is not in the files. `outside`: it is in the files, and not trusted."""
    edits: tuple[FileEdit, ...]
    reason: str
    """Why it is pending."""
    sources: tuple[str, ...] = ()
    """Untrusted sources in the transcript at that time."""
    session: str = ""
    turn: int = 0
    at: str = ""
    client: str = ""
    """The program that asked for it, through `ouro mcp serve`."""


class Proposals:
    """Those of one scope that are not in the files. Everything blocks: use from a thread."""

    def __init__(self, history: GitRepository) -> None:
        self._history = history

    def list(self) -> tuple[Proposal, ...]:
        """Oldest first; what cannot be read is left out, and stays."""
        return tuple(found for found in map(_read, self._stored()) if found)

    def add(self, proposal: Proposal) -> None:
        """Store one; it is on disk when this returns. The same change is stored once."""
        with self._history.alone():
            added = [*self._without(proposal.id), msgspec.Raw(msgspec.json.encode(proposal))]
            self._history.save_state(_NAME, added)

    def remove(self, proposal_id: str) -> None:
        with self._history.alone():
            self._history.save_state(_NAME, self._without(proposal_id))

    def _stored(self) -> tuple[msgspec.Raw, ...]:
        """Each as it is in the file; none where the file is damaged."""
        return self._history.load_state(_NAME, tuple[msgspec.Raw, ...])

    def _without(self, proposal_id: str) -> Sequence[msgspec.Raw]:
        """All but that one. A damaged file is renamed: what is pending in it is not lost."""
        stored = self._stored()
        if not stored and len(self._history.read_record(_NAME)) > len("[]"):
            path = self._history.own_dir / _NAME
            path.replace(path.with_name(f"{_NAME}-{os.urandom(4).hex()}.damaged"))
        found = ((raw, _read(raw)) for raw in stored)
        return [raw for raw, proposal in found if proposal is None or proposal.id != proposal_id]


def _read(raw: msgspec.Raw) -> Proposal | None:
    """None where it is damaged, or a newer ouro wrote it."""
    try:
        return msgspec.json.decode(raw, type=Proposal)
    except msgspec.DecodeError as error:
        log.warning("memory: a proposal cannot be read: %s", error)
        return None


def make_proposal(
    scope: Scope, edits: Sequence[FileEdit], reason: str, sources: Sequence[str], session: str, turn: int, at: str
) -> Proposal:
    """A change that the agent or a model made; of what came from outside by then the latest are named."""
    named = tuple(dict.fromkeys(sources))[-MAX_SOURCES:]
    return Proposal(proposal_id(scope, edits), scope, "agent", tuple(edits), reason, named, session, turn, at)


def proposal_id(scope: Scope, edits: Sequence[FileEdit]) -> str:
    parts = [scope, *(f"{edit.name}\0{edit.before}\0{edit.after}" for edit in edits)]
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:6]


def outside_id(scope: Scope, blobs: Mapping[str, str]) -> str:
    """The id of changes in the files, by name and blob: known without reading them."""
    return hashlib.sha256("\0".join([scope, *map("\0".join, blobs.items())]).encode(errors="replace")).hexdigest()[:6]


def question_about(proposal: Proposal) -> Question:
    """The question in plain words: where the change was found or why it is pending, and all of its lines."""
    names = ", ".join(edit.name for edit in proposal.edits[:MAX_SOURCES])
    if (more := len(proposal.edits) - MAX_SOURCES) > 0:
        names += f" and {more:,} more files"
    if proposal.origin == "outside":
        why = [f"Found in {names} of your memory, not yet approved: {proposal.reason}."]
    else:
        why = [f"The agent wrote it into {names}. You are asked because {proposal.reason}."]
    if proposal.sources:
        why.append(f"Read before it was written: {', '.join(proposal.sources)}.")
    lines = [escaped(line) for edit in proposal.edits for line in _changed(edit, named=len(proposal.edits) > 1)]
    left = [f"… and {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    where = "in all your projects" if proposal.scope == "user" else "in this project"
    return Question(f"Remember this {where}?", (KEEP, LEAVE), details="\n".join([*why, *lines[:_MAX_LINES], *left]))


def memory_note(text: str) -> str:
    """A note about memory for the model, sent with the next message."""
    return f"<memory_note>\n{text.replace('<', '&lt;')}\n</memory_note>"


def _changed(edit: FileEdit, *, named: bool) -> list[str]:
    """The changed lines with `+` or `-`; of a note its text, then its other fields in one line."""
    old, new = (edit.before or "").splitlines(), (edit.after or "").splitlines()
    title = [edit.name] if named else []
    if is_note_name(edit.name.rpartition("/")[2]):
        words, before = _words_of(new), _words_of(old)
        changes = [*(f"- {line}" for line in before if line not in words), *(f"+ {line}" for line in words)]
        fields = new[1 : len(new) - len(words) - 1]
        kept = set(old)
        changed = " · ".join(line.strip() for line in fields if line not in kept and line.strip())
        return [*title, *filter(lambda line: line[2:].strip(), changes), *([f"  ({changed})"] if changed else [])]
    found = list(line_changes(old, new))
    gone = [f"- {line}" for start, end, _, _ in found for line in old[start:end]]
    return [*title, *gone, *(f"+ {line}" for _, _, start, end in found for line in new[start:end])]


def subject_of(edits: Iterable[FileEdit]) -> str:
    """The edits in one line: `preferences.md: + Answer in German`."""
    first = islice(edits, _SUBJECT // len("a.md: -"))  # no more of them can be seen
    return cut("; ".join(map(_summary, first)), _SUBJECT) or "Nothing"


def change_of(
    scope: Scope, edits: Sequence[FileEdit], origin: str, *, undo: str = "", proposal: str = "", files: int = 0
) -> CoreChanged:
    """The event of the edits, of many the first, with invisible characters written out; of a note, its text.

    Args:
        files: how many files have changed, if `edits` are only the first of them.
    """
    shown = tuple(
        FileChange(edit.name, edit.before and escaped(edit.before), edit.after and escaped(edit.after))
        for edit in map(_without_front_matter, edits[:MAX_SHOWN])
    )
    count = max(files, len(edits))
    subject = subject_of(edits) + (f" ({count:,} files)" if count > MAX_SHOWN else "")
    display = Display(f"{scope}: {subject}", Diff(shown))
    return CoreChanged(scope, origin, subject, display, undo, proposal)  # type: ignore[arg-type]


def digest(texts: Mapping[str, str]) -> str:
    parts = [f"{name}\0{texts[name]}" for name in sorted(texts)]
    return "~" + hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:12]


def _words_of(lines: list[str]) -> list[str]:
    """The text of a note, without its front matter."""
    end = lines.index("---", 1) if lines[:1] == ["---"] and "---" in lines[1:] else -1
    return lines[end + 1 :]


def _summary(edit: FileEdit) -> str:
    name, old, new = edit.name, (edit.before or "").splitlines(), (edit.after or "").splitlines()
    if is_note_name(edit.name.rpartition("/")[2]):
        name = name.removesuffix(".md")[: name.find("mem_") + _ID]
        old, new = _words_of(old), _words_of(new)
    before, after = set(old), set(new)
    gone = [line.lstrip("-*# ").strip() for line in old if line not in after and line.strip()]
    come = [line.lstrip("-*# ").strip() for line in new if line not in before and line.strip()]
    words = [f"+ {come[0]}"] if come else [f"- {gone[0]}"] if gone else ["no words changed"]
    more = len(come) + (0 if come else len(gone)) - 1
    return f"{name}: {cut(escaped(words[0]), _WORDS)}{f' and {more} more' if more > 0 else ''}"


def _without_front_matter(edit: FileEdit) -> FileEdit:
    """A note by its text, unless only its front matter has changed."""
    if not is_note_name(edit.name.rpartition("/")[2]):
        return edit
    texts = (edit.before, edit.after)
    before, after = (None if text is None else "\n".join(_words_of(text.splitlines())) for text in texts)
    return edit if before == after else FileEdit(edit.name, before, after)
