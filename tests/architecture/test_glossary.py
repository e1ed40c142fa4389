"""The words of this project: names, docstrings, comments, messages and docs use the terms of the
field.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest
from architecture.sources import ROOT, sources

WORDS = {
    "user": r"\bthe persons?\b|\ba person\b|\bsomebody|whoever|someone's hand",
    "session": r"taken? up again|takes? up again|tak(?:e|es|en) over again|go(?:es|ne)? on with",
    "trusted, accepted, approved": r"vouch\w*|is believed|not believed|are believed|believes\b",
    "source, provenance": r"whence|teller\b",
    "undo, revert": (
        r"tak(?:e|es|en|ing) back|took back|put(?:s|ting)? back|taken_back|take_back|taking_back"
    ),
    "archive, remove": r"put(?:s|ting)? away|put_away",
    "background": r"abroad|out of band|beside the (?:conversation|turns?|session|loop)",
    "warning, notice, error": r"complain(?:t|ts|s|ed)?\b",
    "maintenance": r"growing old|digestion",
    "MAX_, MIN_": r"\b_?(?:MOST|LONGEST|LEAST|FEWEST|LARGEST|SMALLEST)_[A-Z]\w*|_ABROAD",
    "session catalog, writer, history": r"\bshelf\b|\bSessionShelf\b|\bDesk\b|\bchronicle\b",
    "plain words": (
        r"in other clothes|in another dress|is to be said|told of|as one asks for it|the way back"
        r"|nobody is there|lend(?:s|ing)? (?:the|a) hand|it is written `"
    ),
    "without a question, without asking": r"\bunasked\b",
    "again": r"\banew\b",
    "instead of": r"\bin place of\b|\btakes? the place of\b",
    "is relevant to": r"\bbears? on\b",
    "permanently": r"\bfor good\b",
    "fix": r"\bmend(?:s|ed|ing)?\b",
    "is in": r"\bstands? in\b|\blies in\b",
    "gets, is informed": r"\b(?:is|are) told\b",
    "one of your": r"\bof yours\b",
    "the reverse": r"\bthe other way round\b",
}
"""What to write instead, and the pattern that is wrong."""

DOC_WORDS = {
    "continue": r"\b(?:go(?:es|ing)?|went) on\b",
    "automatically": r"\bby itself\b",
    "import": r"\btakes? over\b",
}
"""The same for the documentation, which has more everyday words."""

FUNCTION_NAMES = {
    "told",
    "kept",
    "united",
    "taken_up",
    "whence",
    "said",
    "asked",
    "noted",
    "beside",
    "gone",
}
"""Participles and adverbs: a function is named by a verb, a value by a noun."""

BARE_NAMES = {
    "Line",
    "Entry",
    "Hit",
    "Piece",
    "Block",
    "Plan",
    "Found",
    "Reading",
    "Row",
    "Kept",
    "Listed",
    "Remembered",
}
"""A class names its subject: `DiffHunk`, `MemoryEntry`."""

ALLOWED: dict[tuple[str, str], str] = {
    ("ouro/memory/long_term/git/values.py", "vouched"): "the name of a file on disk",
    ("docs/commands.md", "take_back"): "a key name in settings",
    ("ouro/frontends/tui/keymap.py", "take back"): "a key's name in users' settings",
    ("ouro/commands/export/__init__.py", "taken back"): "a key of exported JSON",
    ("docs/sessions.md", "taken_back"): "a key of exported JSON",
    ("tests/memory/long_term/test_import_files.py", "complains"): "the text of a note",
    ("ouro/commands/sessions.py", "for good"): "a key of the JSON output",
    ("ouro/llm/small_model_steps.py", "mend"): "a word that users write",
    (
        "ouro/llm/small_model_steps.py",
        "Mend",
    ): "a word of a prompt that was measured with small models",
    (
        "ouro/memory/long_term/capture/small_model.py",
        "Mend",
    ): "an example of a prompt that was measured",
    ("tests/session/test_titles.py", "Mend"): "the text of a title",
}
"""(file, matched text) that must stay, with the reason: a file name, a protocol, a quotation."""

_PATTERNS = {
    use: re.compile(pattern if "MAX_" in use else pattern.lower()) for use, pattern in WORDS.items()
}
"""All names but constants are searched in lower case: ignoring the case takes five times as long.
"""
_OF_TESTS = re.compile(r'\bdef \w+|"""[^"]*"""|#.*')
"""The searched parts of a test: names, docstrings, comments. Other strings are data and may use any
words.
"""
DOCS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "AGENTS.md",
    "models.yaml.example",
    "docs",
    "benchmarks",
)


def wrong_words() -> Iterator[str]:
    """`file:line: match: use …` for every forbidden word."""
    for name, text in _texts():
        searched = re.sub(r"(?<=[a-z])_(?=[a-z])", " ", text) if name.endswith(".py") else text
        for use, found, match in _matches(searched):
            if (name, found) not in ALLOWED:
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {found!r}: use {use}"


def _matches(text: str) -> Iterator[tuple[str, str, re.Match[str]]]:
    lowered = text.lower()
    for use, pattern in _PATTERNS.items():
        for match in pattern.finditer(text if "MAX_" in use else lowered):
            yield use, text[match.start() : match.end()], match


def wrong_names() -> Iterator[str]:
    """Loop variables named `each`, functions named by a participle or adverb, and classes without a
    subject.
    """
    for source in sources():
        for node in source.nodes:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name.strip("_") in FUNCTION_NAMES
            ):
                yield f"ouro/{source.name}:{node.lineno}: function {node.name}"
            if isinstance(node, ast.ClassDef) and node.name in BARE_NAMES:
                yield f"ouro/{source.name}:{node.lineno}: class {node.name}: name its subject"
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and node.id in BARE_NAMES
            ):
                yield f"ouro/{source.name}:{node.lineno}: type {node.id}: name its subject"
            if isinstance(node, ast.Name) and node.id == "each" and isinstance(node.ctx, ast.Store):
                yield f"ouro/{source.name}:{node.lineno}: variable `each`"


def repeated_class_names() -> list[str]:
    """Public classes whose name is used by more than one module."""
    places: dict[str, list[str]] = {}
    for source in sources():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(source.name)
    return [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]


def _texts() -> Iterator[tuple[str, str]]:
    for source in sources():
        yield f"ouro/{source.name}", source.text
    for path in (ROOT / "tests").rglob("*.py"):
        if path.parent.name != "architecture":
            lines = (" ".join(_OF_TESTS.findall(line)) for line in path.read_text().splitlines())
            yield path.relative_to(ROOT).as_posix(), "\n".join(lines)
    for path in (*(ROOT / "ouro").rglob("*.md"), *(ROOT / name for name in DOCS)):
        found = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        yield from (
            (item.relative_to(ROOT).as_posix(), item.read_text())
            for item in found
            if item.is_file()
        )


def test_no_forbidden_word():
    assert sorted(set(wrong_words())) == []


def test_no_forbidden_word_in_the_documentation():
    pages = {name: text.lower() for name, text in _texts() if name.startswith(DOCS)}
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: use {use}"
        for use, pattern in DOC_WORDS.items()
        for name, text in pages.items()
        for match in re.finditer(pattern, text)
    ]
    assert found == []


def test_names_use_the_terms_of_the_glossary():
    assert list(wrong_names()) == []


def test_a_class_name_is_used_once():
    assert repeated_class_names() == []


@pytest.mark.parametrize(
    "text", ["Taken back by the person", "def take_back(self)", "_MOST_READ = 4096", "whence"]
)
def test_statement_patterns_match_the_forbidden_examples(text):
    assert list(_matches(text))


if __name__ == "__main__":
    room = sys.argv[1] if len(sys.argv) > 1 else ""
    found = [
        line for line in (*sorted(set(wrong_words())), *wrong_names()) if line.startswith(room)
    ]
    print(*found, f"{len(found)} words", sep="\n")
    print(
        *(line for line in repeated_class_names() if room.removeprefix("ouro/") in line), sep="\n"
    )
