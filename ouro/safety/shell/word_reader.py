"""Words of a shell line: plain and quoted text, variables, substitutions."""

from __future__ import annotations

import os
import re
import shutil
import sys
from abc import ABC, abstractmethod

import msgspec

from ouro.safety.shell.command import ShellLine, Word

MAX_DEPTH = 30
"""How deeply commands and substitutions in a line may be nested."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9?#$!@*-]))", re.ASCII)
_PLAIN_DOLLAR = re.compile(r"\$(?=[\s\"'/|),.:;\\}%]|$)")
"""A `$` that is only text."""
_SINGLE_QUOTES = re.compile(r"'([^']*)'")
_ANSI_QUOTES = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
_ANSI_ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)
_BACKTICKS = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL)
_SIMPLE_SUBSTITUTION = re.compile(
    r"""[$<]\((?![^)]*(<<|\bcase\b))([^()`#\\\n'"]|'[^()`#\\\n']*'|"[^()`#\\\n"]*")*\)"""
)
"""A substitution that every version of bash ends at the same place as this pattern."""
_QUOTED_DOCUMENT = re.compile(
    r"""\$\(cat <<(['"])(?P<mark>\w+)\1\n"""
    r"""(?P<text>(?:(?!(?P=mark))[^\n]*(?<!\\)\n)*)(?P=mark)\n\s*\)"""
)
"""`$(cat <<'EOF' …)`, as models write commit messages. `EOF)` ends the text, too, and in bash 4.0
`EO\\`, `F`.
"""
# In `{}`, `{` and `HEAD@{1}` the braces are text.
_BRACES = re.compile(r"(?<!@)\{(?!\}?\Z)|\{[^}]*(,|\.\.)")
_ARITHMETIC = re.compile(r"\$\(\([0-9 +*/%-]+\)\)")
_UNSPLIT = re.compile(r"[\w./@%+=:,-]+")
"""A value that stays one word without quotes."""
_UNSPLIT_GLOB = re.compile(r"[\w./@%+=:,*?\[\]-]+")
"""The same for a pattern of files."""
WORD_ENDS = " \t\n;&|()<>"


class _Draft(msgspec.Struct):
    """A word that is being read."""

    text: str = ""
    """The word without quotes, as far as it was read."""
    bare: str = ""
    """The unquoted characters of the word."""
    exact: bool = True
    """Whether bash expands nothing of it."""


def _is_known(value: Word) -> bool:
    """Whether the value of a variable is known, perhaps as a pattern of files."""
    return value.exact or value.glob


def _is_one_word(value: Word) -> bool:
    """Whether bash does not split the value of a variable outside of quotes."""
    pattern = _UNSPLIT_GLOB if value.glob else _UNSPLIT
    return bool(pattern.fullmatch(value.text))


class WordReader(ABC):
    """Reads the words of a script: quoted pieces, variables and substitutions among them. It keeps
    the position in the text, and notes in the line what it does not understand. Many methods have
    the argument `quoted`: whether this position is inside of double quotes.
    """

    def __init__(self, text: str, line: ShellLine, depth: int) -> None:
        self._text = text
        self._at = 0
        """The position of the next character to read."""
        self._line = line
        """What is found out is added here."""
        self._depth = depth
        """The number of commands and expansions around this text."""

    @abstractmethod
    def _read_script(self, text: str, begin: int = 0, end: str = "") -> int:
        """Read the commands of `text` from the position `begin` up to `end`; returns the position
        after `end`.
        """

    def _make_opaque(self, reason: str) -> None:
        """Note why the line cannot be judged."""
        self._line.make_opaque(reason)

    def _hide(self, reason: str) -> None:
        """Note why the commands of the line are not known."""
        self._line.hide(reason)

    def _is_simple_substitution(self) -> bool:
        """Whether a `<(command)` begins at this position, and is so simple that every version of
        bash finds the same end of it.
        """
        is_file = self._text.startswith("<(", self._at)
        return is_file and bool(_SIMPLE_SUBSTITUTION.match(self._text, self._at))

    def _read_substituted_file(self) -> Word:
        """Read `<(command)`, which bash replaces by the path of a file with the output of the
        command. Returns a word that names no file of the workspace: the command is judged by
        itself.
        """
        draft = _Draft()
        self._read_inner_script(draft)
        if self._text[self._at : self._at + 1] not in WORD_ENDS:
            self._make_opaque("it uses the output of a command as a file")
        return Word(draft.text, exact=False, raw=draft.text, under=("/dev/null",))

    def _read_word(self) -> Word:
        """Read a word at this position; returns it with its text as bash would see it."""
        draft, start = _Draft(), self._at
        if re.match(r"~(?!/|[\s;&|<>()]|$)", self._text[start:]):
            self._make_opaque("it names the home folder of another user")
        self._read(draft, WORD_ENDS)
        if draft.text.startswith("~") and not self._text.startswith("~", start):
            draft.text = f"./{draft.text}"  # quoted: a file of that name
        # `[` alone is the command, not a pattern.
        glob = draft.text != "[" and bool(re.search(r"[*?\[]", draft.bare))
        if _BRACES.search(draft.bare):
            self._make_opaque("it may make several words of one")
            draft.exact = False
        raw = self._text[start : self._at]
        under: tuple[str, ...] = ()
        # `"$file"` of a loop over names of files stands for these files.
        variable = re.fullmatch(r'"\$\{?(\w+)\}?"', raw)
        if variable and variable[1] in self._line.values:
            under = self._line.values[variable[1]].under
        return Word(draft.text, exact=draft.exact and not glob, glob=glob, raw=raw, under=under)

    def _read(self, draft: _Draft, ends: str, *, quoted: bool = False) -> None:
        """Read characters into the draft up to one of `ends`, which is not read, or to the end of
        the text. Quoted pieces and expansions are read as a whole. `quoted`: inside double quotes.
        """
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if not quoted and text.startswith(("<(", ">("), self._at):
                self._make_opaque("it uses the output of a command as a file")
                self._read_inner_script(draft)
            elif char in ends:
                return
            elif char in "$`":
                self._read_expansion(draft, quoted=quoted)
            elif char == "\\" and self._is_escape(quoted=quoted):
                self._read_escaped(draft)
            elif char in "'\"" and not quoted:
                self._read_quotes(draft, char)
            else:
                draft.text += char
                draft.bare += "" if quoted else char
                self._at += 1

    def _is_escape(self, *, quoted: bool) -> bool:
        """Whether the backslash at this position changes the meaning of the next character."""
        following = self._text[self._at + 1 : self._at + 2]
        return not quoted or following in ("$", "`", '"', "\\", "\n")

    def _read_escaped(self, draft: _Draft) -> None:
        """Read a backslash and the character after it."""
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            self._hide("it cannot be parsed")
        elif following == "\n":
            # It may join a `$` with a `(` in the next line, of which bash runs the command.
            self._make_opaque("a word of it continues in the next line")
        draft.text += following.replace("\n", "")
        self._at += 2

    def _read_quotes(self, draft: _Draft, quote: str) -> None:
        """Read `'…'` or `"…"`."""
        if quote == "'":
            draft.text += self._read_quoted(_SINGLE_QUOTES)
            return
        self._at += 1
        self._read(draft, '"', quoted=True)
        if self._at >= len(self._text):
            self._hide("a quote is not closed")
        self._at += 1

    def _read_expansion(self, draft: _Draft, *, quoted: bool) -> None:
        """Read the expansion that a `$` or a backtick begins at this position. If its value is not
        known, the word is not exact. If it may become several words, the line is opaque.
        """
        text, at = self._text, self._at
        if text[at] == "`":
            self._read_backticks(draft)
        elif quoted and (message := self._match_quoted_document()):
            # Its text is known, without the newlines at the end, which bash removes.
            self._at = message.end()
            draft.text += message["text"].rstrip("\n")
        elif match := _ARITHMETIC.match(text, at):
            self._at = match.end()
            draft.text += match[0]
            draft.exact = False
        elif text.startswith("$(", at):
            self._read_substitution(draft, quoted=quoted)
        elif text.startswith("$'", at) and not quoted:
            self._make_opaque("it uses $'…'")
            draft.text += _ANSI_ESCAPE.sub(_unescape, self._read_quoted(_ANSI_QUOTES))
        elif match := _VARIABLE.match(text, at):
            self._at = match.end()
            name = match[1] or match[2]  # as `${name}`, or as `$name`
            self._read_variable(draft, name, match[0], quoted=quoted)
        elif text.startswith("${", at):
            self._read_computation(draft)
        else:
            self._read_dollar(draft, quoted=quoted)

    def _read_substitution(self, draft: _Draft, *, quoted: bool) -> None:
        """Read `$(…)`. The line becomes opaque, except for a quoted one that is so simple that
        every version of bash finds the same end of it.
        """
        is_one_word = quoted and _SIMPLE_SUBSTITUTION.match(self._text, self._at)
        if not is_one_word:
            self._make_opaque("it uses the output of a command")
        self._read_inner_script(draft)

    def _read_backticks(self, draft: _Draft) -> None:
        """Read a command between backticks; its commands are judged as part of the line."""
        self._make_opaque("it uses the output of a command")
        script = self._read_quoted(_BACKTICKS)
        unescaped = re.sub(r"\\([`$\\])", r"\1", script)
        self._read_script(unescaped)
        draft.text += f"`{script}`"
        draft.exact = False

    def _match_quoted_document(self) -> re.Match[str] | None:
        """Returns the match of a `$(cat <<'EOF' …)` at this position; its group `text` is the text
        that bash puts there. None if there is no such document, or bash may run something of it.
        """
        match = _QUOTED_DOCUMENT.match(self._text, self._at)
        if match is None:
            return None
        text_after = self._text[match.end() :]
        return match if _runs_nothing(match["text"], text_after) else None

    def _read_computation(self, draft: _Draft) -> None:
        """Read a `${…}` that is more than a name. The line becomes opaque. Commands in it are read
        nevertheless, because bash runs them.
        """
        self._make_opaque("it computes with variables")
        draft.exact = False
        self._at += 2
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._hide("it is nested too deeply")
        else:
            self._read(draft, "}")
        self._depth -= 1
        self._at += 1

    def _read_dollar(self, draft: _Draft, *, quoted: bool) -> None:
        """Read a `$` as text. If it is more than text, it begins an expansion that is not known
        here, and the line becomes opaque.
        """
        # Bash may replace the text of `$"…"` by a translation.
        is_translated = self._text.startswith('$"', self._at) and not quoted
        if is_translated or not _PLAIN_DOLLAR.match(self._text, self._at):
            self._make_opaque("it computes with variables")
        draft.text += "$"
        self._at += 1

    def _read_variable(self, draft: _Draft, name: str, raw: str, *, quoted: bool) -> None:
        """Add the value of a variable to the word that is being read, if the value is known and
        bash does not split it into several words. Otherwise the variable counts as unknown.

        A value is known if the line has set it. HOME, if the line does not set it, has the value of
        ouro's environment, unless a character of it is special to bash.

        Args:
            raw: the variable as it was written.
        """
        home, value = os.environ.get("HOME", ""), self._line.values.get(name)
        if name == "HOME" and value is None and re.fullmatch(r"/[\w/.@+-]*", home):
            draft.text += home
        elif name == "?":
            draft.text += "0"  # a number, and it makes no difference which one
        elif value is not None and (quoted or _is_one_word(value)) and _is_known(value):
            draft.text += value.text
            if value.glob:
                draft.bare += value.text  # bash expands the pattern as if it was written here
        else:
            self._unknown_variable(draft, name, raw, value, quoted=quoted)

    def _unknown_variable(
        self, draft: _Draft, name: str, raw: str, value: Word | None, *, quoted: bool
    ) -> None:
        """Add a variable whose value is not known for certain; the word is not exact then. Without
        quotes it may become several words, which makes the line opaque. `value` is what the line
        has set it to, as far as that is known: its text is added. None: the line has not set it,
        and the variable itself is added, as it was written (`raw`).
        """
        is_one_word = value is None and _UNSPLIT.fullmatch(os.environ.get(name, ""))
        if not quoted and not is_one_word:
            self._make_opaque(f"the value of {raw} is not known")
        draft.exact = False
        if name == "IFS":  # its value is white space
            draft.text += " "
        else:
            draft.text += value.text if value and value.raw else raw

    def _read_inner_script(self, draft: _Draft) -> None:
        """Read `$(…)`, `<(…)` or `>(…)`, and the commands in it. The word of the draft is then not
        exact, because bash computes it.
        """
        start = self._at
        self._at = self._read_script(self._text, start + 2, ")")
        draft.text += self._text[start : self._at]
        draft.exact = False

    def _read_quoted(self, pattern: re.Pattern[str]) -> str:
        """Read a quoted piece that `pattern` matches at this position; returns the text between the
        quotes. If they are not closed, `_hide` is called, and the rest of the text is returned.
        """
        match = pattern.match(self._text, self._at)
        if not match:
            self._hide("a quote is not closed")
        inside = match[1] if match else self._text[self._at + 1 :]
        self._at = match.end() if match else len(self._text)
        return inside


def _runs_nothing(text: str, rest: str) -> bool:
    """Whether bash finds nothing to run in the text of a `$(cat <<'EOF' …)` before `rest`.

    Bash 3.2, which macOS has, does not know here-documents in `$(…)`: it reads the text as quotes
    and expansions, and ends at a `)`.
    """
    knows_documents = sys.platform == "linux" and shutil.which("bash") is not None
    if knows_documents:
        return True
    has_expansion = re.search(r'[$`"\\]', text)
    may_open_quote = "'" in text and "'" in rest
    return not has_expansion and not may_open_quote


def _unescape(match: re.Match[str]) -> str:
    """Returns the character that an escape between `$'` and `'` stands for. The match has what is
    behind the backslash, such as the `n` of `\\n`; if that has no meaning, it is returned itself.
    """
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "E": "\x1b"}.get(code, code)
