"""`/memory init`: three questions to the user, then the agent reads the repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import Answer, MemoryAccess
from ouro.commands.render import View, line
from ouro.display import Choice

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext

_SKIP = Choice(value="", label="skip", detail="remember nothing; `#TEXT` says it in your own words")
QUESTIONS = (
    (
        "1 of 3 · In which language should ouro answer?",
        (
            Choice("I want answers in the language of my message", "the language I write in"),
            Choice("I want all answers in English", "English"),
        ),
    ),
    (
        "2 of 3 · How long should answers be?",
        (
            Choice("I want you to be brief: the result first", "short"),
            Choice("I want the reasons of each change explained", "explained"),
        ),
    ),
    (
        "3 of 3 · When may ouro commit?",
        (
            Choice("I want commits only when I ask for them", "when I ask"),
            Choice("I want a commit whenever a task is finished", "when a task is finished"),
        ),
    ),
)
"""Each question with its answers; the value of an answer is what is remembered about the user."""


async def init(context: SessionContext) -> Answer:
    """Ask the questions, remember the answers about the user, and let the agent read the repository.

    Esc at a question ends this; what was answered before is remembered.
    """
    await context.manager.wait_until_settled()
    answers, is_complete = await _ask_all(context)
    view: View = []
    for text in answers:
        view += await _remember(context, text)
    if not is_complete:
        return Answer({"remembered": answers, "reads": False}, [*view, line("Stopped here.")])
    folder = await context.memory(_repo_folder)
    if folder is None:
        reason = "The repository is not read: there is no project memory in use here."
        return Answer({"remembered": answers, "reads": False}, [*view, line(reason)])
    await context.front_end.send(_prompt(folder))
    return Answer({"remembered": answers, "reads": True}, view)


async def _ask_all(context: SessionContext) -> tuple[list[str], bool]:
    """Ask all questions. Returns the texts to remember, and whether the user went through all
    questions. A skipped question adds no text; after a cancelled one no other is asked.
    """
    texts: list[str] = []
    for question, choices in QUESTIONS:
        chosen = await context.choose(question, (*choices, _SKIP))
        if chosen is None:
            return texts, False
        if chosen != _SKIP.value:
            texts.append(chosen)
    return texts, True


async def _remember(context: SessionContext, text: str) -> View:
    """Remember a text about the user; returns what is shown of that."""
    from ouro.commands.memory_remember import remember

    return (await remember(context, text, "user")).view


def _repo_folder(memory: MemoryAccess) -> Path | None:
    """The folder of the repository's memory, or None if it is not in use."""
    for scope in memory.editor.scopes:
        if scope.name == "repo":
            return scope.store.folder
    return None


def _prompt(folder: Path) -> str:
    """The message that lets the agent read the repository, and write into this folder of memory."""
    text = Path(__file__).with_name("memory_init.md").read_text(encoding="utf-8")
    return text.strip().format(folder=folder)
