"""Commands on instructions and skills: list, switch, draft a skill from the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, Title, block, line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.session import checked_skill, draft_skill, save_skill
from ouro.utils.git import find_root
from ouro.utils.runtime import get_home, tilde
from ouro.utils.text import cut, plural

if TYPE_CHECKING:
    from ouro.commands.front_end import FrontEnd
    from ouro.commands.slash import SessionContext

PLACES = {"user": "all projects", "project": "this project"}
"""Where a drafted skill can be saved."""


async def instructions(context: SessionContext) -> Answer:
    found = context.session.workbench.extensions.instructions
    files = found.report()
    if not files:
        return Answer([], [line("No instructions are loaded. /init writes an AGENTS.md.")])
    rows = [(CodeSpan(tilde(item.path)), item.reason, item.state, plural(item.tokens, "token")) for item in files]
    sent = sum(item.tokens for item in files if item.state == "sent")
    problems = [line(problem, level="warning") for problem in found.problems]
    return Answer(files, [Title(f"Instructions: about {plural(sent, 'token')} sent"), *table(rows), *problems])


async def skills(context: SessionContext, switch: str, name: str) -> Answer:
    found = context.session.workbench.extensions.skills
    if switch:
        if not name:
            raise UsageError(f"Usage: /skills {switch} NAME. /skills lists the names.")
        found.switch(name, on=switch == "on")
        return Answer(name, [line(f"{name} is {switch}. The list in the prompt changes with the next session.")])
    if not found.all():
        return Answer([], [line("There are no skills. Put one in ~/.ouro/skills/NAME/SKILL.md, or use /skill save.")])
    rows = []
    for skill in found.all():
        state = "on" if skill.is_offered else "by you only" if skill.is_on else "off"
        listed, used = skill.tokens
        cost = f"{plural(listed, 'token')}, {used:,} when used"
        description = cut(skill.file.description, 80)
        rows.append((CodeSpan(f"/{skill.name}"), state, cost, CodeSpan(tilde(skill.folder)), description))
    total = sum(skill.tokens[0] for skill in found.all())
    return Answer(
        [skill.name for skill in found.all()],
        [Title(f"Skills: about {plural(total, 'token')} in each request"), *table(rows)],
    )


async def skill(front_end: FrontEnd, argument: str) -> None:
    verb, _, what = argument.partition(" ")
    if verb != "save":
        raise UsageError("Usage: /skill save [what]. /skills lists the skills.")
    session = front_end.session
    folders = {"user": get_home() / "skills", "project": find_root(session.cwd) / ".ouro" / "skills"}
    front_end.say("The model writes a draft …")
    draft = await draft_skill(session, what.strip())
    choices = [
        *(Choice(place, f"Save it for {label}", tilde(folders[place])) for place, label in PLACES.items()),
        Choice("edit", "Edit it first"),
        Choice("drop", "Drop it"),
    ]
    while True:
        front_end.show(block(draft.text, "markdown"))
        chosen = await front_end.choose(f"Save the skill {draft.name}?", choices)
        if chosen == "edit":
            draft = checked_skill(session, await front_end.edit(draft.text))
            continue
        if chosen in folders:
            path = save_skill(draft, folders[chosen])
            front_end.say(f"Saved {tilde(path)}: new sessions use it. Edit it there.")
        else:
            front_end.say("The draft was dropped.")
        return
