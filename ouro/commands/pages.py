"""The pages of the documentation, which are part of the installed package."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path

import ouro
from ouro import settings
from ouro.commands.action import ActionContext, Answer
from ouro.commands.builtin import find_command
from ouro.commands.render import Markdown, line
from ouro.errors import UsageError
from ouro.utils.text import one_line

_INSTALLED = Path(ouro.__file__).with_name("pages")
_IN_REPOSITORY = Path(ouro.__file__).parents[1] / "docs"
_USAGE = (
    "`ouro help settings` prints one, `ouro help tui.theme` explains a setting, `ouro --help` lists"
    " the commands."
)
_FOR_DEVELOPERS = {"architecture", "dependencies", "extending", "index", "threats"}


def page_files() -> Mapping[str, Path]:
    """Name of a page -> its file; those for users first. Blocks."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _IN_REPOSITORY
    files = {path.stem: path for path in sorted(folder.glob("*.md"))}
    return dict(sorted(files.items(), key=lambda item: item[0] in _FOR_DEVELOPERS))


def page_text(topic: str) -> str:
    """The page of that name (`settings`, `docs/settings.md`), or its part (`settings#titles`).
    Empty if there is none. Blocks.
    """
    name, _, part = topic.strip().partition("#")
    file = page_files().get(name.removeprefix("docs/").removesuffix(".md").lower())
    if file is None:
        return ""
    text = file.read_text(encoding="utf-8")
    return _part_of(text, part) if part else text


def _part_of(text: str, anchor: str) -> str:
    """The section with that anchor, up to the next heading that is as high; else all of it."""
    found: list[str] = []
    level, is_code = 0, False
    for row in text.splitlines():
        is_code ^= row.startswith("```")
        depth = 0 if is_code else len(row) - len(row.lstrip("#"))
        if level and 0 < depth <= level:
            break
        if not level and depth and _anchor(row) == anchor.lower():
            level = depth
        if level:
            found.append(row)
    return "\n".join(found) + "\n" if found else text


def _anchor(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", heading.lstrip("#").lower()).split()
    return "-".join(words)


async def help_topic(_context: ActionContext, topic: str) -> Answer:
    """A page of the documentation, what a setting means, or what a command does."""
    words = " ".join(topic.split())
    if not words:
        names = ", ".join(page_files())
        return Answer(list(page_files()), [line(f"Pages: {names}."), line(_USAGE)])
    if text := page_text(words) or setting_text(words) or _command_text(words):
        return Answer(text, [Markdown(text)])
    from difflib import get_close_matches

    near = get_close_matches(words.split()[0], page_files(), 3)
    meant = f"Did you mean {', '.join(near)}?" if near else "`ouro help` lists the pages."
    raise UsageError(f"There is no page about `{words[:60]}`.", meant)


def setting_text(key: str) -> str:
    """What a setting, or each setting of a section, means; empty if there is none. Blocks."""
    found = {
        name: text
        for name, text in setting_helps().items()
        if name == key or name.startswith(f"{key}.")
    }
    return "\n\n".join(
        f"`{name}`: {text or 'see the page `settings`'}" for name, text in found.items()
    )


def _command_text(words: str) -> str:
    command = find_command(words.removeprefix("/").split()[0])
    if command is None:
        return ""
    examples = "".join(f"\n\n    /{example}" for example in command.examples)
    return f"`{command.usage}`: {command.help}.{examples}"


@cache
def setting_helps() -> Mapping[str, str]:
    """The dotted name of each setting and what it means, as the source says it."""
    tree = ast.parse(Path(settings.__file__).read_text(encoding="utf-8"))
    sections = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return dict(_helps_in(sections, "Settings", ""))


def _helps_in(
    sections: Mapping[str, ast.ClassDef], name: str, prefix: str
) -> list[tuple[str, str]]:
    """The settings of a section and of those below it, each with its docstring as help."""
    helps = list[tuple[str, str]]()
    body = sections[name].body
    for node, following in zip_longest(body, body[1:]):
        if not isinstance(node, ast.AnnAssign):
            continue
        key, kind = f"{prefix}{ast.unparse(node.target)}", ast.unparse(node.annotation)
        if kind in sections:
            helps += _helps_in(sections, kind, f"{key}.")
        else:
            helps.append((key, _constant_text(following)))
    return helps


def _constant_text(node: ast.stmt | None) -> str:
    """The text below a field, as one line; empty if another statement follows."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return one_line(str(node.value.value), 300)
    return ""
