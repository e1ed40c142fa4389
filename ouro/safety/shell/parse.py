"""A shell line taken apart: each command that it would run, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.values import MAX_DEPTH, WORDS, WordReader
from ouro.safety.shell.words import Assignment, Command, Redirect, Word, names
from ouro.safety.shell.wrappers import Inner, inner_commands

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 50
_MAX_NESTING = 5
_PLAIN_OPERATORS = {"=", "==", "!=", "=~", "!", "<", ">", "-a", "-o"}
_FILE_TESTS = re.compile(r"-[abcdefghknprstuwxzGLNOS]|-nt|-ot|-ef")
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_PASS_THROUGH = names(
    """
    program list pipeline subshell compound_statement if_statement elif_clause else_clause do_group
    while_statement case_statement case_item negated_command command_substitution
    process_substitution parenthesized_expression heredoc_body
    """
)


class Line(msgspec.Struct, frozen=True):
    """A shell line: its commands in order, those inside of others among them, and what cannot be judged."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...] = ()
    doubt: str = ""
    """Why no rule and no list may let it pass without a question."""
    opaque: str = ""
    """Why it cannot even be known which commands would run."""
    fragments: tuple[str, ...] = ()
    """Where it is opaque: pieces that look like commands, for deny rules."""


def parse_line(text: str) -> Line:
    """Take `text` apart as bash would; never raises, what is not understood is said in the answer."""
    reader = _Reader()
    reader.read(text)
    opaque = reader.opaque
    if len(text) > MAX_CHARACTERS:
        opaque = f"it is longer than {MAX_CHARACTERS:,} characters"
    elif sum(command.kind != "guess" for command in reader.commands) > MAX_COMMANDS:
        opaque = f"it runs more than {MAX_COMMANDS} commands"
    elif _STRANGE.search(text):
        opaque = opaque or "it holds control or invisible characters"
    fragments = tuple(_fragments(text)) if opaque else ()
    return Line(tuple(reader.commands), tuple(reader.redirects), reader.doubt, opaque, fragments)


def _fragments(text: str) -> Iterator[str]:
    for piece in re.split(r"[;&|\n\r()`<>\"'$]+", text):
        for variant in {piece, re.sub(r"[{},\\]+", " ", piece), re.sub(r"\\", "", piece)}:
            if words := variant.split():
                yield " ".join(words)


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@dataclass
class _Reader(WordReader):
    """Walks a syntax tree and gathers what it finds."""

    commands: list[Command] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    nesting: int = 0

    def read(self, text: str, kind: Literal["plain", "guess"] = "plain") -> None:
        """Read one more script: the line itself, or one that a command of it was given."""
        if self.nesting > _MAX_NESTING:
            self.opaque = "it is nested too deeply"
            return
        outer, self.source = self.source, text.encode("utf-8", "surrogatepass")
        self.nesting += 1
        first = len(self.commands)
        root = _parser().parse(self.source).root_node
        if root.has_error:
            self.opaque = "it cannot be parsed"
        self._visit(root, 0)
        if kind == "guess":
            self.commands[first:] = [replace(command, kind="guess") for command in self.commands[first:]]
        self.nesting -= 1
        self.source = outer

    def _visit(self, node: Node, depth: int, piped: bool = False, stdin: str | None = None) -> None:
        if depth > MAX_DEPTH:
            self.opaque = "it is nested too deeply"
        elif node.type == "command":
            self._command(node, depth, piped, stdin)
        elif node.type == "redirected_statement":
            self._redirected(node, depth, piped)
        elif node.type == "pipeline":
            for number, child in enumerate(node.named_children):
                self._visit(child, depth + 1, piped or number > 0, stdin)
        else:
            self._structure(node, depth, piped, stdin)

    def _structure(self, node: Node, depth: int, piped: bool, stdin: str | None) -> None:
        match node.type:
            case "variable_assignment" | "variable_assignments":
                self._note_assignments([node] if node.type == "variable_assignment" else node.named_children, depth)
            case "declaration_command":
                self._declaration(node, depth)
            case "function_definition":
                self.doubt = "it defines a function"
                self.descend(node, depth, piped, stdin)
                self._note_recursion(node)
            case "test_command":
                self._test(node, depth)
            case "for_statement":
                self.variables.pop(self.text(node.child_by_field_name("variable")), None)
                self.descend(node, depth, piped, stdin)
            case "comment" | "unset_command" | "heredoc_content" | "heredoc_start" | "heredoc_end" | "ERROR":
                self.descend(node, depth, piped, stdin)
            case kind if kind in _PASS_THROUGH:
                if self.text(node).startswith(("((", "$((")) and kind == "compound_statement":
                    self.doubt = "it computes with variables"
                self.descend(node, depth, piped, stdin)
            case kind if kind in WORDS:
                self.word(node, depth)
            case _:
                self.doubt = f"{node.type.replace('_', ' ')} cannot be judged"
                self.descend(node, depth, piped, stdin)

    def descend(self, node: Node, depth: int, piped: bool = False, stdin: str | None = None) -> None:
        """Visit what stands inside `node`."""
        for child in node.named_children:
            self._visit(child, depth + 1, piped, stdin)

    # -- commands

    def _command(self, node: Node, depth: int, piped: bool, stdin: str | None) -> None:
        assignments: list[Assignment] = []
        words: list[Word] = []
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    assignments.append(self._assignment(child, depth))
                case "command_name":
                    words.append(self.joined(child, depth))
                case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                    stdin = self._redirect(child, depth) or stdin
                case _:
                    words.append(self.word(child, depth))
        if words:
            self._add(Command(tuple(words), tuple(assignments), piped, stdin))
        self._trust(assignments if not words else [])

    def _add(self, command: Command) -> None:
        if len(self.commands) > MAX_COMMANDS * 4:
            return
        inner = inner_commands(command)
        name = command.words[0]
        if inner.opaque or not name.exact or not name.text:
            self.opaque = inner.opaque or "the name of a command is computed"
        self.doubt = inner.doubt or self.doubt
        self.commands.append(replace(command, kind="wrapper") if inner.transparent else command)
        self._add_inner(inner)

    def _add_inner(self, inner: Inner) -> None:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            self.opaque = "it is nested too deeply"
        else:
            for command in inner.commands:
                self._add(command)
            for guess in inner.guesses:
                self.commands.append(replace(guess, kind="guess"))
        self.nesting -= 1
        for script in inner.scripts:
            self.read(script)

    def _redirected(self, node: Node, depth: int, piped: bool) -> None:
        body = node.child_by_field_name("body")
        stdin: str | None = None
        for child in node.named_children:
            if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                given = self._redirect(child, depth)
                stdin = given if given is not None else stdin
        if body is not None:
            self._visit(body, depth + 1, piped, stdin)

    def _redirect(self, node: Node, depth: int) -> str | None:
        """Note a redirection; gives the text that a here-document or here-string feeds in."""
        if node.type == "heredoc_redirect":
            return self._heredoc(node, depth)
        if node.type == "herestring_redirect":
            words = [self.word(child, depth) for child in node.named_children]
            return words[0].text if words and words[0].exact else None
        operator = next((child.type for child in node.children if not child.is_named), ">")
        for target in node.children_by_field_name("destination"):
            self.redirects.append(Redirect(operator, self.word(target, depth)))
        return None

    def _heredoc(self, node: Node, depth: int) -> str | None:
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        opening, text = self.text(start), self.text(body)
        mark = opening.strip("'\"\\")
        if not re.fullmatch(r"\w+", mark) or mark in (line.lstrip("\t") for line in text.split("\n")):
            self.opaque = "its here-document cannot be judged"
        for child in node.named_children:
            if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                self._redirect(child, depth)
            elif child.type in WORDS:
                self.opaque = "its here-document stands before arguments"
            else:
                self._visit(child, depth + 1, piped=True)
        quoted = opening != mark
        if not quoted and body is not None and re.search(r"`|\$\(", text) and not body.named_child_count:
            self.opaque = "its here-document cannot be judged"
        return text if quoted or not re.search(r"[$`\\]", text) else None

    def _declaration(self, node: Node, depth: int) -> None:
        parts = [child for child in node.named_children if child.type == "variable_assignment"]
        self._note_assignments(parts, depth)
        for child in node.named_children:
            if child.type not in ("variable_assignment", "variable_name"):
                word = self.word(child, depth)
                if not re.fullmatch(r"-[xgr]+", word.text):
                    self.doubt = "its declaration cannot be judged"

    def _note_assignments(self, nodes: list[Node], depth: int) -> None:
        self._trust([self._assignment(node, depth) for node in nodes if node.type == "variable_assignment"])

    def _trust(self, assignments: list[Assignment]) -> None:
        """Remember what variables hold from here on, and hold the assignments against the line where they matter."""
        for assignment in assignments:
            self.variables[assignment.name] = assignment.value.text
            if not assignment.harmless:
                self.doubt = f"it sets {assignment.name}"

    def _assignment(self, node: Node, depth: int) -> Assignment:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and name.type == "subscript":
            self.doubt = "it computes with variables"
            self.descend(name, depth)
        if value is not None and value.type == "array":
            self.descend(value, depth)
            return Assignment(self.text(name), Word(self.text(value), exact=False))
        return Assignment(self.text(name), self.word(value, depth) if value is not None else Word(""))

    def _note_recursion(self, node: Node) -> None:
        name = self.text(node.child_by_field_name("name"))
        if any(command.words[0].text == name for command in self.commands):
            self.opaque = "it defines a function that calls itself"

    def _test(self, node: Node, depth: int) -> None:
        for part in _leaves(node):
            if part.type in ("test_operator", "-a", "-o") or (not part.is_named and part.type.startswith("-")):
                if not _FILE_TESTS.fullmatch(self.text(part)):
                    self.doubt = "its test computes with variables"
            elif part.type == "subscript":
                self.doubt = "its test computes with variables"
        for part in _expressions(node):
            self.word(part, depth)


def _leaves(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type in ("unary_expression", "binary_expression", "parenthesized_expression", "test_operator"):
            yield from [child] if child.type == "test_operator" else _leaves(child)
        else:
            yield child


def _expressions(node: Node) -> Iterator[Node]:
    return (leaf for leaf in _leaves(node) if leaf.is_named and leaf.type != "test_operator")
