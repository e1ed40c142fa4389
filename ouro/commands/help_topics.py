"""What `ouro help` prints: pages of the documentation, what a setting means, what a command does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import ouro
from ouro.commands.action import ActionContext, Answer
from ouro.commands.command_lookup import find_command
from ouro.commands.render import Markdown, line
from ouro.commands.setting_helps import setting_helps
from ouro.errors import UsageError

_INSTALLED_PAGES = Path(ouro.__file__).with_name("pages")
_REPOSITORY_PAGES = Path(ouro.__file__).parents[1] / "docs"
_USAGE = (
    "`ouro help settings` prints one, `ouro help tui.theme` explains a setting, `ouro --help` lists"
    " the commands."
)
_PAGES_FOR_DEVELOPERS = {"architecture", "dependencies", "extending", "index", "threats"}


def page_files() -> Mapping[str, Path]:
    """The name and the file of each page of the documentation, by name; the pages for users come
    first. Blocks.
    """
    folder = _INSTALLED_PAGES if _INSTALLED_PAGES.is_dir() else _REPOSITORY_PAGES
    files = {path.stem: path for path in sorted(folder.glob("*.md"))}
    for_users = {name: path for name, path in files.items() if name not in _PAGES_FOR_DEVELOPERS}
    return for_users | files  # the names that are in both stay at the front


def page_text(topic: str) -> str:
    """The text of the page of that name (`settings`, `docs/settings.md`), or of its section
    (`settings#titles`). Empty if there is no such page. Blocks.
    """
    name, _, anchor = topic.strip().partition("#")
    file = page_files().get(name.removeprefix("docs/").removesuffix(".md").lower())
    if file is None:
        return ""
    text = file.read_text(encoding="utf-8")
    return _section_of(text, anchor) if anchor else text


def _section_of(text: str, anchor: str) -> str:
    """The section with that anchor, up to the next heading of its level or a higher one. Without such
    a section, the whole text. A `#` in a block of code begins no heading.
    """
    section: list[str] = []
    section_level = 0  # the number of `#` of its heading; 0 before it is found
    is_in_code = False
    for text_line in text.splitlines():
        if text_line.startswith("```"):
            is_in_code = not is_in_code
        heading_level = 0 if is_in_code else len(text_line) - len(text_line.lstrip("#"))
        if section_level and 0 < heading_level <= section_level:
            break
        if not section_level and heading_level and _anchor(text_line) == anchor.lower():
            section_level = heading_level
        if section_level:
            section.append(text_line)
    if not section:
        return text
    return "\n".join(section) + "\n"


def _anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading: `## Titles of sessions` -> `titles-of-sessions`."""
    words = re.sub(r"[^\w\s-]", "", heading.lstrip("#").lower()).split()
    return "-".join(words)


async def help_topic(_context: ActionContext, topic: str) -> Answer:
    """Show a page of the documentation, what a setting means, or what a command does. Without a topic
    list the pages. Raises UsageError for another topic.
    """
    words = " ".join(topic.split())
    if not words:
        names = ", ".join(page_files())
        return Answer(list(page_files()), [line(f"Pages: {names}."), line(_USAGE)])
    text = page_text(words) or setting_text(words) or _command_text(words)
    if text:
        return Answer(text, [Markdown(text)])
    from difflib import get_close_matches

    similar = get_close_matches(words.split()[0], page_files(), n=3)
    hint = f"Did you mean {', '.join(similar)}?" if similar else "`ouro help` lists the pages."
    raise UsageError(f"There is no page about `{words[:60]}`.", hint)


def setting_text(key: str) -> str:
    """What a setting means, or each setting of a section such as `tui`, in Markdown; empty if there
    is none. Blocks.
    """
    helps = {
        name: text
        for name, text in setting_helps().items()
        if name == key or name.startswith(f"{key}.")
    }
    return "\n\n".join(
        f"`{name}`: {text or 'see the page `settings`'}" for name, text in helps.items()
    )


def _command_text(words: str) -> str:
    """What a slash command does, with examples; empty if there is no such command."""
    name = words.removeprefix("/").partition(" ")[0]
    command = find_command(name) if name else None
    if command is None:
        return ""
    examples = "".join(f"\n\n    /{example}" for example in command.examples)
    return f"`{command.usage}`: {command.help}.{examples}"
