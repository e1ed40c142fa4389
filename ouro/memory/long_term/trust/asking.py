"""What the person is asked about a change of memory that waits for them."""

from __future__ import annotations

from ouro.display import Question
from ouro.memory.long_term.git.history import line_changes
from ouro.memory.long_term.git.values import FileEdit
from ouro.memory.long_term.notes.note import is_note_name
from ouro.memory.long_term.trust.edits import subject_of, words_of
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.utils.text import escaped

KEEP, LEAVE = "keep it", "leave it out"
_MOST_LINES = 40


def question_about(proposal: Proposal) -> Question:
    """The question, with why it waits, what was read before, and the lines that change."""
    why = [f"It waits because {proposal.reason}."]
    if proposal.sources:
        why.append(f"Read before it was written: {', '.join(proposal.sources)}.")
    lines = [escaped(line) for edit in proposal.edits for line in _changed(edit)]
    left = [f"… and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    text = f"Remember this ({proposal.scope})? {subject_of(proposal.edits)}"
    return Question(text, (KEEP, LEAVE), details="\n".join([*why, *lines[:_MOST_LINES], *left]))


def remark(text: str) -> str:
    """Something that the model is told of its memory with the next message."""
    return f"<memory_note>\n{text.replace('<', '&lt;')}\n</memory_note>"


def _changed(edit: FileEdit) -> list[str]:
    old, new = (edit.before or "").splitlines(), (edit.after or "").splitlines()
    if not old and is_note_name(edit.name.rpartition("/")[2]):  # what it says before what is known of it
        said = words_of(new)
        return [edit.name, *(f"+ {line}" for line in (*said, *new[: len(new) - len(said)]))]
    changes = list(line_changes(old, new))
    gone = [f"- {line}" for start, end, _, _ in changes for line in old[start:end]]
    return [edit.name, *gone, *(f"+ {line}" for _, _, start, end in changes for line in new[start:end])]
