"""Parse a shell line into commands and redirections.

Only a small part of bash is understood: plain and quoted words, `$HOME`, `$?`, pipes, `&&`, `||`, `;`, newlines and
redirections. Anything else makes the line *opaque*: it is asked about. Its commands are still collected, as well as
they can be, for deny rules and the hard floor. Where even that fails, the line is *hidden*: it is asked in every mode.
"""

from __future__ import annotations

import os
import re

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.command import Assignment, Command, Redirect, Word
from ouro.safety.shell.inner import inner_commands
from ouro.safety.shell.tables import names

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 50
_MAX_DEPTH = 30
_KEYWORDS = names(
    """
    if then elif else fi for while until do done case esac in select function time coproc { } ! [[
    """
)
_NAMING_KEYWORDS = frozenset({"for", "select", "case", "function"})
_CHANGES_SHELL = names(
    "export declare typeset local readonly unset shopt let mapfile readarray read getopts enable hash"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[.*?\])?(\+?)=", re.DOTALL)
_REDIRECT = re.compile(r"(?:\d*(<<<|<<-|<<|<>|<&|<|>\||>>|>&|>)|(&>>|&>))(?!\()")
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;;&|;;|;&|;|&|\n")
_UNDERSTOOD_OPERATORS = {"&&", "||", "|", ";", "\n"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9?#$!@*-]))")
_PLAIN_DOLLAR = re.compile(r"\$(?=[\s\"'/|),.:;\\}%]|$)")
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_WORD_ENDS = " \t\n;&|()<>"


class ShellLine(msgspec.Struct, frozen=True):
    """A shell line: its commands in order, with nested ones."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: str = ""
    """Why it cannot be judged; empty where it is understood."""
    hidden: str = ""
    """Why not even its commands are known; then it is opaque, too."""


def parse_line(text: str) -> ShellLine:
    """Parse `text` as bash would. Never raises: `opaque` and `hidden` name what is not understood."""
    found = _Found()
    _Lexer(text[: 10 * MAX_CHARACTERS], found, 0).script()
    for body in found.bodies if found.hidden else ():
        _Lexer(body, found, 1).script()
    if len(text) > MAX_CHARACTERS:
        found.hidden = f"it is longer than {MAX_CHARACTERS:,} characters"
    elif sum(command.kind != "guess" for command in found.commands) > MAX_COMMANDS:
        found.hidden = f"it runs more than {MAX_COMMANDS} commands"
    elif _STRANGE.search(text):
        found.hidden = "it holds control or invisible characters"
    return ShellLine(tuple(found.commands), tuple(found.redirects), found.opaque or found.hidden, found.hidden)


class _Found:
    """The commands collected by the lexers of a line and of its nested scripts."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.redirects: list[Redirect] = []
        self.opaque = ""
        self.hidden = ""
        self.variables: dict[str, str] = {}
        self.bodies: list[str] = []
        """The here-documents."""

    def add(self, command: Command, depth: int) -> None:
        if len(self.commands) > MAX_COMMANDS * 4:
            return
        if not command.words[0].exact and command.kind != "guess":
            self.hidden = self.hidden or "the command is computed"
        inner = inner_commands(command) if depth <= _MAX_DEPTH else None
        if inner is None:
            self.commands.append(command)
            return
        self.commands.append(replace(command, kind="wrapper") if inner.transparent else command)
        self.opaque = self.opaque or inner.opaque
        self.hidden = self.hidden or inner.hidden
        for one in inner.commands:
            self.add(one, depth + 1)
        self.commands += inner.guesses
        for script in inner.scripts:
            _Lexer(script, self, depth + 1).script()


class _Draft:
    def __init__(self) -> None:
        self.text = ""
        self.bare = ""
        """Its unquoted characters."""
        self.exact = True


class _Lexer:
    """Reads one script: a line, or what a command of it runs."""

    def __init__(self, text: str, found: _Found, depth: int) -> None:
        self._text = text
        self._at = 0
        self._found = found
        self._depth = depth
        self._words: list[tuple[Word, str]] = []
        self._stdin: str | None = None
        self._piped = False
        self._after_heredocs = 0
        """Where the text goes on behind the here-documents of this line."""

    def script(self, end: str = "") -> None:
        """Read commands up to `end`, the `)` of a substitution, or to the end of the text."""
        self._depth += 1
        while self._at < len(self._text) and self._depth <= _MAX_DEPTH:
            char = self._text[self._at]
            if char in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._at = self._end_of_line()
            elif char in "()":
                self._at += 1
                if char == ")" and end:
                    break
                self._group(char)
            elif found := _REDIRECT.match(self._text, self._at):
                self._at = found.end()
                self._redirect(found[1] or found[2])
            elif found := _OPERATOR.match(self._text, self._at):
                self._at = found.end()
                self._operator(found[0])
            else:
                start = self._at
                word = self._word()
                self._words.append((word, self._text[start : self._at]))
        else:
            if end or self._depth > _MAX_DEPTH:
                self._hide("it cannot be parsed")
        self._finish()
        self._depth -= 1

    def _opaque(self, reason: str) -> None:
        self._found.opaque = self._found.opaque or reason

    def _hide(self, reason: str) -> None:
        self._found.hidden = self._found.hidden or reason

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _group(self, char: str) -> None:
        self._opaque("it groups commands")
        if char == "(" and self._words and re.match(r"\s*\)", self._text[self._at :]):
            self._hide("it defines a function")
        self._finish()
        if char == "(":
            self.script(")")

    def _operator(self, operator: str) -> None:
        if operator not in _UNDERSTOOD_OPERATORS or (operator != "\n" and not self._words):
            self._opaque(f"it uses `{operator}`")
        self._finish()
        self._piped = operator.startswith("|") and operator != "||"
        if operator == "\n":
            self._at = max(self._at, self._after_heredocs)
        elif operator in ("&&", "||", "|", "|&") and not self._text[self._at :].strip():
            self._hide("it cannot be parsed")

    # -- commands

    def _finish(self) -> None:
        words, self._words = self._words, []
        stdin, self._stdin = self._stdin, None
        piped, self._piped = self._piped, False
        words = self._without_keywords(words)
        assignments: list[Assignment] = []
        while words and (found := _ASSIGNMENT.match(words[0][1])):
            word, _ = words.pop(0)
            if found[2] or found[3]:
                self._opaque("it changes an array or a variable")
            name, _, value = word.text.partition("=")
            assignments.append(Assignment(name, replace(word, text=value)))
        if words:
            if words[0][0].text in _CHANGES_SHELL:
                self._opaque(f"{words[0][0].text} changes the shell")
            self._found.add(Command(tuple(word for word, _ in words), tuple(assignments), piped, stdin), self._depth)
            for word, raw in words:
                if not word.exact and "{" in raw:
                    split = re.sub(r"[{},]+", " ", " ".join(other.text for other, _ in words)).split()
                    self._found.commands.append(Command(tuple(map(Word, split)), kind="guess")) if split else None
                    break
        elif assignments:
            self._opaque("it sets a variable")
            self._found.variables |= {one.name: one.value.text for one in assignments}

    def _without_keywords(self, words: list[tuple[Word, str]]) -> list[tuple[Word, str]]:
        while words and words[0][1] in _KEYWORDS:
            keyword = words[0][1]
            self._opaque(f"it uses `{keyword}`")
            if keyword == "function":
                self._hide("it defines a function")
            if keyword in _NAMING_KEYWORDS and len(words) > 1:
                self._found.variables.pop(words[1][0].text, None)
            words = [] if keyword in ("[[", "for", "case", "select") else words[2 if keyword == "function" else 1 :]
        return words

    def _redirect(self, operator: str) -> None:
        if (
            self._words
            and re.search(r"\{\w+\}$", self._words[-1][1])
            and self._text[self._at - len(operator) - 1] == "}"
        ):
            self._opaque("it names a file descriptor")
        while self._text[self._at : self._at + 1] in (" ", "\t") and self._at < len(self._text):
            self._at += 1
        start = self._at
        word = self._word()
        raw = self._text[start : self._at]
        if not raw:
            self._hide("it cannot be parsed")
        elif operator in ("<<", "<<-"):
            self._opaque("it holds a here-document")
            self._read_heredoc(word.text, strips_tabs=operator == "<<-", is_quoted=word.text != raw)
        elif operator == "<<<":
            self._opaque("it uses `<<<`")
            self._stdin = word.text
        else:
            redirect = Redirect(operator, word)
            self._found.redirects.append(redirect)
            if not word.exact or (operator == "<&" and not redirect.duplicates):
                self._opaque("the target of a redirection is computed")

    def _read_heredoc(self, delimiter: str, *, strips_tabs: bool, is_quoted: bool) -> None:
        at, lines = max(self._end_of_line() + 1, self._after_heredocs), []
        while at < len(self._text):
            end = self._text.find("\n", at)
            line = self._text[at : end if end >= 0 else None]
            at = end + 1 if end >= 0 else len(self._text)
            if (line.lstrip("\t") if strips_tabs else line) == delimiter:
                break
            lines.append(line)
        self._after_heredocs = at
        self._stdin = "\n".join(lines)
        self._found.bodies.append(self._stdin)
        if not is_quoted:  # the commands in it are run
            text = self._stdin.replace('"', "")
            _Lexer(f'"{text}"', self._found, self._depth + 1)._word()

    # -- words

    def _word(self) -> Word:
        draft, start = _Draft(), self._at
        if self._text.startswith("~", start) and not re.match(r"~(/|[\s;&|<>()]|$)", self._text[start:]):
            self._opaque("it names the home folder of another user")
        self._read(draft, _WORD_ENDS)
        if draft.text.startswith("~") and not self._text.startswith("~", start):
            draft.text = f"./{draft.text}"  # quoted: a file of that name
        glob = draft.text != "[" and bool(re.search(r"[*?\[]", draft.bare))  # `[` alone is the command
        if "{" in draft.bare and re.search(r",|\.\.", draft.bare):
            self._opaque("it makes several words of one")
            draft.exact = False
        return Word(draft.text, draft.exact and not glob, glob)

    def _read(self, draft: _Draft, ends: str) -> None:
        """Read unquoted characters up to one of `ends`, quoted pieces among them."""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "<>" and self._text[self._at + 1 : self._at + 2] == "(" and ends == _WORD_ENDS:
                self._opaque("it uses the output of a command as a file")
                self._substitute(draft, 2)
            elif char in ends:
                return
            elif char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                if not following:
                    self._hide("it cannot be parsed")
                draft.text += following.replace("\n", "")
                self._at += 2
            elif char == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    self._hide("a quote is not closed")
                    end = len(self._text)
                draft.text += self._text[self._at + 1 : end]
                self._at = end + 1
            elif char == '"':
                self._quoted(draft)
            elif char in "$`":
                self._expansion(draft, quoted=False)
            else:
                draft.text += char
                draft.bare += char
                self._at += 1

    def _quoted(self, draft: _Draft) -> None:
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\", "\n"):
                draft.text += self._text[self._at + 1].replace("\n", "")
                self._at += 2
            elif char in "$`":
                self._expansion(draft, quoted=True)
            else:
                draft.text += char
                self._at += 1
        self._hide("a quote is not closed")

    def _expansion(self, draft: _Draft, *, quoted: bool) -> None:
        text, at = self._text, self._at
        if text[at] == "`":
            self._backticks(draft)
        elif text.startswith("$(", at):
            self._opaque("it uses the output of a command")
            self._substitute(draft, 2)
        elif text.startswith("$'", at) and not quoted:
            self._ansi(draft)
        elif found := _VARIABLE.match(text, at):
            self._at = found.end()
            self._variable(draft, found[1] or found[2], found[0], quoted=quoted)
        elif text.startswith("${", at):
            self._opaque("it computes with variables")
            draft.exact = False
            self._at += 2
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                self._hide("it is nested too deeply")
            else:
                self._read(draft, "}")
            self._depth -= 1
            self._at += 1
        else:
            if not _PLAIN_DOLLAR.match(text, at) or (text.startswith('$"', at) and not quoted):
                self._opaque("it computes with variables")
            draft.text += "$"
            self._at += 1

    def _variable(self, draft: _Draft, name: str, raw: str, *, quoted: bool) -> None:
        home = os.environ.get("HOME", "")
        if name == "HOME" and "HOME" not in self._found.variables and re.fullmatch(r"/[\w/.@+-]*", home):
            draft.text += home
        elif name == "?":
            draft.text += "0"
        else:
            self._opaque(f"the value of {raw} is not known")
            draft.exact = False
            draft.text += " " if name == "IFS" else self._found.variables.get(name, raw)
            if name in self._found.variables and not quoted:
                draft.exact = bool(re.fullmatch(r"[\w./-]+", self._found.variables[name]))

    def _substitute(self, draft: _Draft, length: int) -> None:
        """Read the commands of `$(…)`, `<(…)` or `>(…)`."""
        start = self._at
        inner = _Lexer(self._text, self._found, self._depth + 1)
        inner._at = start + length
        inner.script(")")
        self._at = inner._at
        draft.text += self._text[start : self._at]
        draft.exact = False

    def _backticks(self, draft: _Draft) -> None:
        self._opaque("it uses the output of a command")
        found = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL).match(self._text, self._at)
        if not found:
            self._hide("a quote is not closed")
        script = found[1] if found else self._text[self._at + 1 :]
        _Lexer(re.sub(r"\\([`$\\])", r"\1", script), self._found, self._depth + 1).script()
        self._at = found.end() if found else len(self._text)
        draft.text += f"`{script}`"
        draft.exact = False

    def _ansi(self, draft: _Draft) -> None:
        self._opaque("it uses $'…'")
        found = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL).match(self._text, self._at)
        if not found:
            self._hide("a quote is not closed")
        draft.text += _ANSI_ESCAPE.sub(_unescaped, found[1] if found else "")
        self._at = found.end() if found else len(self._text)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "E": "\x1b"}.get(code, code)
