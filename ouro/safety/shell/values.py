"""The words of a shell line: what each says once the shell has taken its quotes off, as far as that can be known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ouro.safety.shell.words import Word, names, unescaped_ansi

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 80
WORDS = names(
    """
    word number raw_string string ansi_c_string concatenation simple_expansion expansion
    command_substitution process_substitution arithmetic_expansion brace_expression
    translated_string extglob_pattern regex variable_name special_variable_name string_content
    test_operator
    """
)

_QUOTED = {"raw_string", "string", "ansi_c_string", "translated_string"}


@dataclass
class WordReader:
    """Reads words off a syntax tree; what stands inside of them is visited by who inherits."""

    # What the shell would put there is not known; that it leads home is.
    variables: dict[str, str] = field(default_factory=lambda: {"HOME": "~", "PWD": "."})
    doubt: str = ""
    opaque: str = ""
    source: bytes = b""

    def descend(self, node: Node, depth: int, piped: bool = False, stdin: str | None = None) -> None:
        """Visit what stands inside `node`: commands inside of words are commands of the line."""
        raise NotImplementedError

    def joined(self, node: Node, depth: int) -> Word:
        """The word that the children of `node` make together, with what stands between them."""
        text, bare, exact, glob, at = "", "", True, False, node.start_byte
        for child in node.children:
            gap = self.source[at : child.start_byte].decode("utf-8", "replace")
            word = self.word(child, depth + 1)
            text += gap + word.text
            bare += gap + ("" if child.type in _QUOTED else self.text(child))
            exact, glob, at = exact and word.exact, glob or word.glob, child.end_byte
        rest = self.source[at : node.end_byte].decode("utf-8", "replace")
        return Word(text + rest, exact and not _has_braces(bare + rest), glob)

    def word(self, node: Node, depth: int) -> Word:
        """The word that `node` is."""
        raw = self.text(node)
        if depth > MAX_DEPTH:
            self.opaque = "it is nested too deeply"
            return Word(raw, exact=False)
        match node.type:
            case "word" | "number" | "extglob_pattern" | "regex" | "variable_name" if not node.named_child_count:
                return _unquoted(raw)
            case "raw_string":
                return Word(raw[1:-1])
            case "ansi_c_string":
                return unescaped_ansi(raw[2:-1])
            case "string":
                return self._string(node, depth)
            case "concatenation" | "command_name":
                return self.joined(node, depth)
            case "simple_expansion" | "expansion":
                return self._expansion(node, depth, raw)
            case "arithmetic_expansion":
                self.doubt = "it computes with variables" if re.search(r"[A-Za-z_`]", raw) else self.doubt
        self.descend(node, depth)
        if node.is_named and node.type not in WORDS:
            self.doubt = f"{node.type.replace('_', ' ')} cannot be judged"
        return Word(raw, exact=False)

    def _string(self, node: Node, depth: int) -> Word:
        text, exact, at = "", True, node.start_byte + 1
        for child in node.named_children:
            text += self.source[at : child.start_byte].decode("utf-8", "replace")
            if child.type == "string_content":
                text += self.text(child)
            else:
                word = self.word(child, depth + 1)
                text, exact = text + word.text, False
            at = child.end_byte
        text += self.source[at : node.end_byte - 1].decode("utf-8", "replace")
        return Word(re.sub(r'\\([$`"\\])|\\\n', lambda found: found[1] or "", text), exact)

    def _expansion(self, node: Node, depth: int, raw: str) -> Word:
        self._descend_expansion(node, depth)
        if "@" in raw[2:] and not re.fullmatch(r"\$\{?@\}?", raw):
            self.doubt = "its expansion cannot be judged"
        found = re.fullmatch(r"\$\{?(\w+)\}?", raw)
        if found and found[1] == "IFS":
            return Word(" ", exact=False)
        return Word(self.variables.get(found[1], raw) if found else raw, exact=False)

    def _descend_expansion(self, node: Node, depth: int) -> None:
        for child in node.named_children:
            if child.type == "subscript":
                self.doubt = "it computes with variables"
            self.descend(child, depth + 1) if child.type == "subscript" else self.word(child, depth + 1)

    def text(self, node: Node | None) -> str:
        """The source of `node`; nothing for no node."""
        return "" if node is None else self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _unquoted(raw: str) -> Word:
    text = re.sub(r"\\(?:\n|(.))", lambda found: found[1] or "", raw, flags=re.DOTALL)
    glob = bool(re.search(r"(?<!\\)[*?\[]", raw))
    return Word(text, exact=not glob and not _has_braces(raw), glob=glob)


def _has_braces(raw: str) -> bool:
    """The shell may make several words of it: `{a,b}`, `{1..9}`."""
    return "{" in raw and ("," in raw or ".." in raw)
