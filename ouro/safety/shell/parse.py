"""Parse a shell line into commands and redirections.

Only a small part of bash is understood: plain and quoted words, `$HOME`, `$?`, `"$(cat <<'EOF' …)"`, pipes, `&&`, `||`,
`;`, newlines and redirections. Anything else makes the line *opaque*: it is asked about. Its commands are still
collected, as well as they can be, for deny rules and the hard floor. Where even that fails, the line is *hidden*: it is
asked in every mode.
"""

from __future__ import annotations

import os
import re
import shutil
import sys

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.command import Assignment, Command, Redirect, Word
from ouro.safety.shell.tables import names
from ouro.safety.shell.wrappers import inner_commands

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 50
_MAX_DEPTH = 30
_KEYWORDS = names(
    """
    if then elif else fi for while until do done case esac in select function time coproc { } ! [[
    """
)
_CHANGES_SHELL = names(
    "export declare typeset local readonly unset shopt let mapfile readarray read getopts enable hash"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[.*?\])?(\+?)=", re.DOTALL)
_REDIRECT = re.compile(r"(?:\d*(<<<|<<-|<<|<>|<&|<|>\||>>|>&|>)|(&>>|&>))(?!\()")
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;;&|;;|;&|;|&|\n")
_UNDERSTOOD_OPERATORS = {"&&", "||", "|", ";", "\n"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9?#$!@*-]))")
_PLAIN_DOLLAR = re.compile(r"\$(?=[\s\"'/|),.:;\\}%]|$)")
_SINGLE_QUOTES = re.compile(r"'([^']*)'")
_ANSI_QUOTES = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_BACKTICKS = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL)
_TEXT = re.compile(r"""\$\(cat <<(['"])(\w+)\1\n((?:(?!\2)[^\n]*(?<!\\)\n)*)\2\n\s*\)""")
"""`$(cat <<'EOF' …)`, as models write commit messages. `EOF)` ends the text, too, and in bash 4.0 `EO\\`, `F`."""
_BRACES = re.compile(r"(?<!@)\{|\{[^}]*(,|\.\.)")  # in `HEAD@{1}` they are text
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
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
    _Lexer(text[: 10 * MAX_CHARACTERS], found).script()
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
    """What the lexers of a line and of its nested scripts have found."""

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
        if not command.words[0].exact:
            self.hidden = self.hidden or "the command is computed"
        inner = inner_commands(command) if depth <= _MAX_DEPTH else None
        if inner is None:
            self.commands.append(command)
            return
        self.commands.append(replace(command, kind="wrapper") if inner.transparent else command)
        self.opaque = self.opaque or inner.opaque
        self.hidden = self.hidden or inner.hidden
        for nested in inner.commands:
            self.add(nested, depth + 1)
        self.commands += inner.guesses
        if inner.script:
            _Lexer(inner.script, self, depth + 1).script()


class _Draft:
    """A word that is being read."""

    def __init__(self) -> None:
        self.text = ""
        self.bare = ""
        """Its unquoted characters."""
        self.exact = True


class _Lexer:
    """Reads one script: a line, or what a command of it runs."""

    def __init__(self, text: str, found: _Found, depth: int = 0) -> None:
        self._text = text
        self._at = 0
        self._found = found
        self._depth = depth
        self._words: list[Word] = []
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
                end_of_line = self._text.find("\n", self._at)
                self._at = len(self._text) if end_of_line < 0 else end_of_line
            elif char in "()":
                self._at += 1
                if char == ")" and end:
                    break
                self._group(char)
            elif match := _REDIRECT.match(self._text, self._at):
                self._at = match.end()
                self._redirect(match[1] or match[2])
            elif match := _OPERATOR.match(self._text, self._at):
                self._at = match.end()
                self._operator(match[0])
            else:
                self._words.append(self._word())
        else:
            if end or self._depth > _MAX_DEPTH:
                self._hide("it cannot be parsed")
        self._finish()
        self._depth -= 1

    def _opaque(self, reason: str) -> None:
        self._found.opaque = self._found.opaque or reason

    def _hide(self, reason: str) -> None:
        self._found.hidden = self._found.hidden or reason

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
        self._piped = operator in ("|", "|&")
        if operator == "\n":
            self._at = max(self._at, self._after_heredocs)
        elif operator in ("&&", "||", "|", "|&") and not self._text[self._at :].strip():
            self._hide("it cannot be parsed")

    def _finish(self) -> None:
        """The end of a command."""
        words, self._words = self._words, []
        stdin, self._stdin = self._stdin, None
        piped, self._piped = self._piped, False
        while words and words[0].raw in _KEYWORDS:
            keyword = words.pop(0).raw
            self._opaque(f"it uses `{keyword}`")
            if keyword == "function":
                self._hide("it defines a function")
                del words[:1]
            elif keyword in ("[[", "for", "case", "select"):
                words = []
        assignments: list[Assignment] = []
        while words and (match := _ASSIGNMENT.match(words[0].raw)):
            if match[2] or match[3]:
                self._opaque("it changes an array or a variable")
            word = words.pop(0)
            assignments.append(Assignment(match[1], replace(word, text=word.text.partition("=")[2])))
        if words:
            if words[0].text in _CHANGES_SHELL:
                self._opaque(f"{words[0].text} changes the shell")
            command = Command(tuple(words), tuple(assignments), piped, stdin)
            self._found.add(command, self._depth)
            if any("{" in word.raw and not word.exact for word in words):
                pieces = re.sub(r"[{},]+", " ", command.text).split()
                self._found.commands += [Command(tuple(map(Word, pieces)), kind="guess")] if pieces else []
        elif assignments:
            self._opaque("it sets a variable")
            self._found.variables |= {assignment.name: assignment.value.text for assignment in assignments}

    def _redirect(self, operator: str) -> None:
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        word = self._word()
        if not word.raw:
            self._hide("it cannot be parsed")
        elif operator in ("<<", "<<-"):
            self._opaque("it holds a here-document")
            self._read_heredoc(word, strips_tabs=operator == "<<-")
        elif operator == "<<<":
            self._opaque("it uses `<<<`")
            self._stdin = word.text
        else:
            redirect = Redirect(operator, word)
            self._found.redirects.append(redirect)
            if not word.exact or (operator == "<&" and not redirect.duplicates):
                self._opaque("the target of a redirection is computed")

    def _read_heredoc(self, delimiter: Word, *, strips_tabs: bool) -> None:
        end_of_line = self._text.find("\n", self._at)
        at = max(len(self._text) if end_of_line < 0 else end_of_line + 1, self._after_heredocs)
        lines: list[str] = []
        for line in self._text[at:].split("\n"):
            at += len(line) + 1
            if (line.lstrip("\t") if strips_tabs else line) == delimiter.text:
                break
            lines.append(line)
        self._after_heredocs = min(at, len(self._text))
        self._stdin = "\n".join(lines)
        self._found.bodies.append(self._stdin)
        if delimiter.text == delimiter.raw:  # without quotes: the commands in it are run
            text = self._stdin.replace('"', "")
            _Lexer(f'"{text}"', self._found, self._depth + 1)._word()

    def _word(self) -> Word:
        draft, start = _Draft(), self._at
        if re.match(r"~(?!/|[\s;&|<>()]|$)", self._text[start:]):
            self._opaque("it names the home folder of another user")
        self._read(draft, _WORD_ENDS)
        if draft.text.startswith("~") and not self._text.startswith("~", start):
            draft.text = f"./{draft.text}"  # quoted: a file of that name
        glob = draft.text != "[" and bool(re.search(r"[*?\[]", draft.bare))  # `[` alone is the command
        if _BRACES.search(draft.bare):
            self._opaque("it may make several words of one")
            draft.exact = False
        return Word(draft.text, draft.exact and not glob, glob, self._text[start : self._at])

    def _read(self, draft: _Draft, ends: str, *, quoted: bool = False) -> None:
        """Read characters up to one of `ends`, quoted pieces and expansions among them."""
        text = self._text
        while self._at < len(text):
            char, following = text[self._at], text[self._at + 1 : self._at + 2]
            if not quoted and char in "<>" and following == "(":
                self._opaque("it uses the output of a command as a file")
                self._substitute(draft)
            elif char in ends:
                return
            elif char in "$`":
                self._expansion(draft, quoted=quoted)
            elif char == "\\" and (not quoted or following in ("$", "`", '"', "\\", "\n")):
                if not following:
                    self._hide("it cannot be parsed")
                elif following == "\n":
                    self._opaque("a word of it continues in the next line")  # bash runs "$\ NEWLINE (touch x)"
                draft.text += following.replace("\n", "")
                self._at += 2
            elif char == "'" and not quoted:
                draft.text += self._closed(_SINGLE_QUOTES)
            elif char == '"' and not quoted:
                self._at += 1
                self._read(draft, '"', quoted=True)
                if self._at >= len(text):
                    self._hide("a quote is not closed")
                self._at += 1
            else:
                draft.text += char
                draft.bare += "" if quoted else char
                self._at += 1

    def _expansion(self, draft: _Draft, *, quoted: bool) -> None:
        text, at = self._text, self._at
        if text[at] == "`":
            self._opaque("it uses the output of a command")
            script = self._closed(_BACKTICKS)
            _Lexer(re.sub(r"\\([`$\\])", r"\1", script), self._found, self._depth + 1).script()
            draft.text += f"`{script}`"
            draft.exact = False
        elif quoted and (match := _TEXT.match(text, at)) and _is_only_text(match[3], text[match.end() :]):
            self._at = match.end()
            draft.text += match[3].rstrip("\n")
        elif text.startswith("$(", at):
            self._opaque("it uses the output of a command")
            self._substitute(draft)
        elif text.startswith("$'", at) and not quoted:
            self._opaque("it uses $'…'")
            draft.text += _ANSI_ESCAPE.sub(_unescaped, self._closed(_ANSI_QUOTES))
        elif match := _VARIABLE.match(text, at):
            self._at = match.end()
            self._variable(draft, match[1] or match[2], match[0])
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

    def _variable(self, draft: _Draft, name: str, raw: str) -> None:
        home = os.environ.get("HOME", "")
        if name == "HOME" and "HOME" not in self._found.variables and re.fullmatch(r"/[\w/.@+-]*", home):
            draft.text += home
        elif name == "?":
            draft.text += "0"
        else:
            self._opaque(f"the value of {raw} is not known")
            draft.exact = False
            draft.text += " " if name == "IFS" else self._found.variables.get(name, raw)

    def _substitute(self, draft: _Draft) -> None:
        """Read the commands of `$(…)`, `<(…)` or `>(…)`."""
        start = self._at
        inner = _Lexer(self._text, self._found, self._depth + 1)
        inner._at = start + 2
        inner.script(")")
        self._at = inner._at
        draft.text += self._text[start : self._at]
        draft.exact = False

    def _closed(self, pattern: re.Pattern[str]) -> str:
        """What stands between the quotes of `pattern`; the rest of the text where they are not closed."""
        match = pattern.match(self._text, self._at)
        if not match:
            self._hide("a quote is not closed")
        inside = match[1] if match else self._text[self._at + 1 :]
        self._at = match.end() if match else len(self._text)
        return inside


def _is_only_text(text: str, rest: str) -> bool:
    """Whether bash finds nothing to run in the text of `$(cat <<'EOF' …)`; 3.2, which macOS has, ends it at a `)`."""
    reads_documents = sys.platform == "linux" and shutil.which("bash") is not None
    return reads_documents or not (re.search(r'[$`"\\]', text) or ("'" in text and "'" in rest))


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "E": "\x1b"}.get(code, code)
