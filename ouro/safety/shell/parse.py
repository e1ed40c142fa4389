"""Parse a shell line into commands and redirections.

Only a part of bash is understood: plain and quoted words, here-documents with a quoted end, pipes,
`&&`, `||`, `;`, newlines, redirections, `if`, `while`, groups, `x=1` before other commands, and
`for` over words, which is read once for each of them. A quoted variable or substitution becomes a
word that is not exact. Anything else makes the line *opaque*: it needs a question. Its commands are
still collected as far as possible, for deny rules and the hard floor. If even that fails, the line
is *hidden*: it needs a question in every mode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.command import (
    Assignment,
    Command,
    Redirect,
    ShellLine,
    Word,
    is_plain_test,
    several_words,
)
from ouro.safety.shell.tables import names
from ouro.safety.shell.word_reader import MAX_DEPTH, WordReader
from ouro.safety.shell.wrappers import folders_of_names, inner_commands

MAX_CHARACTERS = 10_000
"""The maximum of a line that is judged."""
MAX_COMMANDS = 50
"""The same, without guesses."""
_MAX_UNROLLED = 40
"""Maximum commands of a line whose loops are read for each word."""
_LOOPS = names("for while until")
_UNDERSTOOD_KEYWORDS = names("if then elif else fi do done time { } !") | _LOOPS
_KEYWORDS = _UNDERSTOOD_KEYWORDS | names("case esac in select function coproc [[")
_CHANGES_SHELL = names(
    "export declare typeset local readonly unset shopt let mapfile readarray read getopts enable"
    " hash fc"
)
_ASSIGNMENT = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?P<index>\[.*?\])?(?P<plus>\+?)=", re.DOTALL | re.ASCII
)
_REDIRECT = re.compile(r"(?:\d*(<<<|<<-|<<|<>|<&|<|>\||>>|>&|>)|(&>>|&>))(?!\()")
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;;&|;;|;&|;|&|\n")
_UNDERSTOOD_OPERATORS = {"&&", "||", "|", "|&", ";", "\n"}
_REST_OF_LINE = re.compile(r"""([^'"\\`$()\n]|'[^'\n]*'|"[^"\\`$\n]*")*\n""")
"""The rest of a line with a here-document: no quote or substitution continues in the next line."""
_VARIABLE_NAME = (  # no variable that bash or a program obeys
    r"(?!\w*_proxy)[a-z][a-z0-9A-Z_]*|[A-Z]"
)
_KNOWN_ASSIGNMENT = re.compile(
    rf"""(?P<name>{_VARIABLE_NAME})="""
    r"""(?P<value>[\w./@%+,:-]+|"[^"$`\\~]*"|'[^'~]*')[ \t]*(?=;|\n|&&|\Z)"""
)
"""`name=value` with a value that bash does not expand, and nothing behind it that gets it."""
_READ_COMMAND = re.compile(r"(?:IFS=[^\s\w$`(]* )?read(?: -r)?(?P<names>(?: [a-z]\w*)+)")
"""`read -r name other`, as the condition of a loop."""
_INVISIBLE_CHARACTER = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]"
)


def parse_line(text: str) -> ShellLine:
    """Parse `text` as bash would. Never raises: `opaque` says why the line cannot be judged, and
    `hidden` why not even its commands are known.
    """
    line = ShellLine()
    # The commands of a line that is too long are read, too: a `deny` rule may be about one.
    _Lexer(text[: 10 * MAX_CHARACTERS], line).script()
    # If commands may be hidden, also the texts of here-documents may be commands.
    for body in [*line.bodies] if line.hidden else ():
        _Lexer(body, line, depth=1).script()
    if len(text) > MAX_CHARACTERS:
        line.hidden = f"it is longer than {MAX_CHARACTERS:,} characters"
    elif sum(command.kind != "guess" for command in line.commands) > MAX_COMMANDS:
        line.hidden = f"it runs more than {MAX_COMMANDS} commands"
    elif _INVISIBLE_CHARACTER.search(text):
        line.hidden = "it holds control or invisible characters"
    line.opaque = line.opaque or line.hidden
    return line


def _add_command(line: ShellLine, command: Command, depth: int) -> None:
    """Add a command to the line, and after it the commands that it runs. `depth` is the number of
    commands around it. For a command deeper than MAX_DEPTH it is not found out what it runs.
    """
    # More than `parse_line` allows, because guesses do not count there.
    if len(line.commands) > MAX_COMMANDS * 4:
        line.hide(f"it runs more than {MAX_COMMANDS} commands")
        return
    if not command.words[0].exact:
        line.hide("the command is computed")
    inner = inner_commands(command) if depth <= MAX_DEPTH else None
    if inner is None:
        line.commands.append(command)
        return
    line.commands.append(replace(command, kind="wrapper") if inner.transparent else command)
    line.make_opaque(inner.opaque)
    line.hide(inner.hidden)
    for nested in inner.commands:
        _add_command(line, nested, depth + 1)
    line.commands += inner.guesses
    if inner.script:
        _Lexer(inner.script, line, depth + 1).script()


def _is_plain_value(word: Word) -> bool:
    """Whether a value of a `for` loop is known, or a pattern of files, so that the body can be read
    with it.
    """
    if word.text.startswith("~"):
        return False  # bash expands `~` in the list of the loop, but not in a variable
    return word.exact or (word.glob and not re.search(r"[$`{<>]", word.text))


def _is_over_plain_values(words: Sequence[Word]) -> bool:
    """Whether the words after `for` are a variable, `in`, and plain values."""
    has_values = len(words) > len(("x", "in")) and words[1].raw == "in"
    return has_values and all(map(_is_plain_value, words[2:]))


def _raw_text(words: Sequence[Word]) -> str:
    """Returns the words as they were written, with one space between them."""
    return " ".join(word.raw for word in words)


class _Loop(msgspec.Struct):
    """A loop that is being read: its body is read once for each value."""

    variables: Sequence[str] = ()
    values: list[Word] = []
    """The values for which the body was not read yet."""
    start: int = 0
    """The position where the body begins; 0 if it is not known how often it runs."""
    commands_before: int = 0
    """The number of commands of the line before the body."""


class _Lexer(WordReader):
    """Reads one script: a line, or the text that a command in it runs. What it finds is added to
    `line`; `depth` is the number of commands around the script.
    """

    def __init__(self, text: str, line: ShellLine, depth: int = 0) -> None:
        super().__init__(text, line, depth)
        self._words: list[Word] = []
        """The words of the command that is being read. The next three fields are about it, too."""
        self._stdin: str | None = None
        """The text of its here-document; None: it has none."""
        self._piped = False
        """Whether it gets the output of another command."""
        self._source: Command | None = None
        """The command whose output it gets; None if there is none, or it is not a simple one."""
        self._loops: list[_Loop] = []
        """The loops that are being read, the innermost last."""
        self._after_heredocs = 0
        """The position after the here-documents of this line, where the text continues."""
        self._is_certain = depth == 0
        """Whether the next command certainly runs, in this shell, and nothing of it is read yet.
        Only then the value of an assignment is known afterwards.
        """
        self._has_keywords = False
        """Whether a keyword such as `if` was read: what is after it may not run."""

    def script(self, end: str = "") -> None:
        """Read commands up to `end`, the `)` of a substitution or subshell. If `end` is empty, up
        to the end of the text.
        """
        self._depth += 1
        is_read = False
        while not is_read:
            self._commands(end)
            end_of_commands = self._at
            self._finish_command()
            # A `done` at the end goes back to the body of its loop, for the next value.
            is_read = self._at >= end_of_commands
        self._depth -= 1

    def _read_script(self, text: str, begin: int = 0, end: str = "") -> int:
        """Read the commands of `text` from the position `begin` up to `end`, with a lexer of their
        own; returns the position after `end`.
        """
        inner = _Lexer(text, self._line, self._depth + 1)
        inner._at = begin
        inner.script(end)
        return inner._at

    def _commands(self, end: str) -> None:
        """Read commands up to `end` or the end of the text. The line is hidden if `end` is missing,
        or the commands are nested deeper than MAX_DEPTH.
        """
        while self._at < len(self._text) and self._depth <= MAX_DEPTH:
            if self._skip_blanks():
                continue
            char = self._text[self._at]
            if char == ")" and end:
                self._at += 1
                return
            self._next_piece(char)
        if end or self._depth > MAX_DEPTH:
            self._hide("it cannot be parsed")

    def _skip_blanks(self) -> bool:
        """Skip a blank, a continued line or a comment; returns whether there was one."""
        char = self._text[self._at]
        if char in " \t":
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif char == "#":
            end_of_line = self._text.find("\n", self._at)
            self._at = len(self._text) if end_of_line < 0 else end_of_line
        else:
            return False
        return True

    def _next_piece(self, char: str) -> None:
        """Read what begins with `char` at this position: a parenthesis, a redirection, an operator,
        an assignment, or words.
        """
        if char in "()":
            self._at += 1
            self._read_group(char)
        elif match := _REDIRECT.match(self._text, self._at):
            self._at = match.end()
            operator = match[1] or match[2]  # the second group is `&>` and `&>>`
            self._read_redirect(operator)
        elif match := _OPERATOR.match(self._text, self._at):
            self._at = match.end()
            self._end_at_operator(match[0])
        elif not self._read_assignment():
            self._read_words()

    def _read_assignment(self) -> bool:
        """Read `name=value` and store the value, if the variable certainly has it from here on.
        Returns False, and reads nothing, if that is not certain, and for a variable of the
        environment, which a program may obey.
        """
        match = _KNOWN_ASSIGNMENT.match(self._text, self._at) if self._is_certain else None
        if match is None or match["name"] in os.environ:
            return False
        self._at = match.end()
        value = match["value"]
        if value[0] in "'\"":
            value = value[1:-1]
        self._line.values[match["name"]] = Word(value)
        return True

    def _read_words(self) -> None:
        """Read a word of a command, or the several words that bash makes of one. The first word of
        a command is always read as one word.
        """
        if self._words and self._is_simple_substitution():
            self._words.append(self._read_substituted_file())
        elif self._words and (several := several_words(self._text, self._at)):
            self._words += several
            written = several[0].raw
            self._at += len(written)
            if written.startswith("$("):  # `$(seq 3)` runs a command
                _add_command(self._line, Command((Word("seq"),)), self._depth)
        else:
            self._is_certain = False  # an assignment is known only at the beginning
            self._words.append(self._read_word())

    def _read_group(self, char: str) -> None:
        """Handle the parenthesis `char`, which was just read. A `(` at the beginning of a command
        begins a subshell, whose commands are read. Any other parenthesis makes the line opaque; if
        it defines a function, the line is hidden.
        """
        self._is_certain = False
        if char == ")" or self._words or self._text.startswith("(", self._at):
            self._make_opaque("it groups commands")
        if char == "(" and self._words and re.match(r"\s*\)", self._text[self._at :]):
            self._hide("it defines a function")
        self._finish_command()
        if char == "(":
            self.script(")")

    def _end_at_operator(self, operator: str) -> None:
        """End the command before an operator, and note two things for the next command: whether it
        gets the output of this one, and whether it certainly runs.
        """
        if operator not in _UNDERSTOOD_OPERATORS:
            self._make_opaque(f"it uses `{operator}`")
        has_words, finished = bool(self._words), self._finish_command()
        self._piped = operator in ("|", "|&")
        # After `|&` the next command also reads error messages: what it gets is not known.
        self._source = finished if operator == "|" else None
        is_empty_line = operator == "\n" and not has_words
        if not is_empty_line:
            is_in_line_itself = self._depth == 1  # not in a subshell or another inner script
            self._is_certain = (
                operator in (";", "\n") and is_in_line_itself and not self._has_keywords
            )
        if operator == "\n":
            self._at = max(self._at, self._after_heredocs)
        elif operator in ("&&", "||", "|", "|&") and not self._text[self._at :].strip():
            self._hide("it cannot be parsed")  # no command is after the operator

    def _finish_command(self) -> Command | None:
        """Make a command of the words that were read since the last one, and add it to the line.
        Returns the command if no keyword is before it; otherwise None. Also None if there is no
        command: nothing was read, or only assignments.
        """
        words, self._words = self._words, []
        stdin, self._stdin = self._stdin, None
        piped, self._piped = self._piped, False
        source, self._source = self._source, None
        is_simple = bool(words) and words[0].raw not in _KEYWORDS
        self._has_keywords = self._has_keywords or (bool(words) and not is_simple)
        while words and words[0].raw in _KEYWORDS:
            words = self._read_keyword(words.pop(0).raw, words, source)
        assignments = self._pop_assignments(words)
        if not words:
            self._store_variables(assignments)
            return None
        command = Command(
            words=tuple(words),
            assignments=tuple(assignments),
            piped=piped,
            source=source,
            stdin=stdin,
        )
        self._add(command)
        return command if is_simple else None

    def _read_keyword(self, keyword: str, words: list[Word], source: Command | None) -> list[Word]:
        """Handle a keyword such as `if` or `done`. `words` are the words after it; returns the ones
        among them that may be a command. After `[[`, `case` and `select` there is none. `source` is
        the command before the keyword in a pipe; None if there is none.
        """
        is_test = keyword == "[[" and is_plain_test(words)
        self._line.has_loop = self._line.has_loop or keyword in _LOOPS or keyword == "select"
        if keyword == "done":
            self._end_loop()
        elif keyword in _LOOPS:
            return self._begin_loop(keyword, words, source)
        elif keyword not in _UNDERSTOOD_KEYWORDS and not is_test:
            self._make_opaque(f"it uses `{keyword}`")
        if keyword == "function":
            self._hide("it defines a function")
            return words[1:]
        return [] if keyword in ("[[", "case", "select") else words

    def _pop_assignments(self, words: list[Word]) -> list[Assignment]:
        """Remove the assignments at the beginning of `words`; returns them."""
        assignments: list[Assignment] = []
        while words and (match := _ASSIGNMENT.match(words[0].raw)):
            if match["index"] or match["plus"]:
                self._make_opaque("it changes an array or a variable")
            word = words.pop(0)
            value = replace(word, text=word.text.partition("=")[2])
            assignments.append(Assignment(match["name"], value))
        return assignments

    def _store_variables(self, assignments: list[Assignment]) -> None:
        """Store the variables that are set by assignments without a command. Their values do not
        count as known, and the line becomes opaque.
        """
        for assignment in assignments:
            self._make_opaque("it sets a variable")
            value = replace(assignment.value, exact=False, glob=False)
            self._line.values[assignment.name] = value

    def _add(self, command: Command) -> None:
        """Add a command to the line. If it has braces, a guess is added too: the words that bash
        may make of them, because `{rm,-rf}` runs `rm -rf`.
        """
        name = command.words[0].text
        if name in _CHANGES_SHELL:
            self._make_opaque(f"{name} changes the shell")
        # The start of a loop is 0 if it is not known how often its body runs.
        is_in_open_loop = any(loop.start == 0 for loop in self._loops)
        if name in ("cd", "pushd", "popd") and is_in_open_loop:
            self._make_opaque("it changes the folder in a loop")
        _add_command(self._line, command, self._depth)
        if any("{" in word.raw and not word.exact for word in command.words):
            pieces = re.sub(r"[{},]+", " ", command.text).split()
            if pieces:
                self._line.commands.append(Command(tuple(map(Word, pieces)), kind="guess"))

    def _begin_loop(self, keyword: str, words: list[Word], source: Command | None) -> list[Word]:
        """Begin a loop; `words` are the words before its body. A `for` over plain values, and a
        `while read`, are understood if their variables are new and no here-document follows;
        otherwise the line becomes opaque. The body of an `until`, or of another `while`, is read
        once.

        Returns the words that are a command, such as the condition of another `while`; empty if
        there are none. `source` is as in `_enter_loop`.
        """
        if keyword == "for":
            is_understood = _is_over_plain_values(words)
            loop = _Loop([word.raw for word in words[:1]], words[2:], self._at)
        elif keyword == "while" and (read_match := _READ_COMMAND.fullmatch(_raw_text(words))):
            is_understood = True
            files = Word(text="", exact=False, under=folders_of_names(source))
            loop = _Loop(read_match["names"].split(), [files])
        else:
            self._loops.append(_Loop())
            return words
        has_heredoc = self._after_heredocs > self._at  # the body is after it
        are_new = all(map(self._is_new_variable, loop.variables))
        if has_heredoc or not (is_understood and are_new):
            self._make_opaque(f"it uses `{keyword}`")
            # The body is read once, and the values of the variables are not known in it.
            loop.variables, loop.values = [], loop.values[:1]
        self._enter_loop(loop, source)
        return []

    def _is_new_variable(self, name: str) -> bool:
        """Whether no variable with this name is set, and no program would obey one."""
        is_known = name in os.environ or name in self._line.values
        return not is_known and bool(re.fullmatch(_VARIABLE_NAME, name))

    def _enter_loop(self, loop: _Loop, source: Command | None) -> None:
        """Begin the first round of a loop: its variables get the first value. `source` is the
        command before the loop in a pipe; None if there is none.
        """
        # An `echo` of the files: they are judged even if the body does not use them.
        if files := [word for word in loop.values if word.glob or word.under]:
            _add_command(self._line, Command((Word("echo"), *files), source=source), self._depth)
        if loop.values:
            first_value, *loop.values = loop.values
            self._line.values |= dict.fromkeys(loop.variables, first_value)
        loop.commands_before = len(self._line.commands)
        self._loops.append(loop)

    def _end_loop(self) -> None:
        """End a round of a loop at `done`. If there is another value, go back to the body of the
        loop; otherwise leave the loop. The line becomes opaque if there would be too many rounds or
        commands.
        """
        loop = self._loops.pop() if self._loops else _Loop()
        line = self._line
        size = len(line.commands)
        line.rounds += 1
        size_after_next_round = size + (size - loop.commands_before)
        is_small = size_after_next_round <= _MAX_UNROLLED and line.rounds <= _MAX_UNROLLED
        if loop.variables and loop.values and is_small:
            line.values[loop.variables[0]] = loop.values.pop(0)
            self._at, loop.commands_before = loop.start, size  # read the body again
            self._loops.append(loop)
            return
        if loop.values:
            self._make_opaque("a loop in it is long")
        for name in loop.variables:
            line.values.pop(name, None)

    def _read_redirect(self, operator: str) -> None:
        """Read the target of a redirection, whose operator was just read. A computed target makes
        the line opaque.
        """
        self._is_certain = False
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        word = self._read_word()
        if operator.startswith("<"):
            self._source = None  # the command reads this instead of the pipe
        if not word.raw:
            self._hide("it cannot be parsed")
        elif operator in ("<<", "<<-"):
            self._read_heredoc(word, strips_tabs=operator == "<<-")
        elif operator == "<<<":
            if not word.exact:
                self._make_opaque("it uses `<<<`")
            self._stdin = word.text
        else:
            redirect = Redirect(operator, word, len(self._line.commands))
            self._line.redirects.append(redirect)
            if not word.exact or (operator == "<&" and not redirect.duplicates):
                self._make_opaque("the target of a redirection is computed")

    def _read_heredoc(self, delimiter: Word, *, strips_tabs: bool) -> None:
        """Read a here-document, up to the line that is `delimiter`, as the input of the command.

        It is only understood if the delimiter is quoted and the operator is not `<<-`. Any other
        makes the line opaque. If the delimiter is not quoted, the commands in the text are read
        too, because bash runs them.
        """
        # What is behind `<<EOF` on the line must be simple, so that the text surely begins after
        # it.
        is_understood = bool(_REST_OF_LINE.match(self._text, self._at))
        end_of_line = self._text.find("\n", self._at)
        next_line = len(self._text) if end_of_line < 0 else end_of_line + 1
        position = max(next_line, self._after_heredocs)  # after an earlier one of this line
        lines: list[str] = []
        for line in self._text[position:].split("\n"):
            position += len(line) + 1
            end_candidate = line.lstrip("\t") if strips_tabs else line
            if end_candidate == delimiter.text:
                break
            lines.append(line)
        else:
            is_understood = False  # no line is the delimiter
        if strips_tabs or not is_understood or not re.fullmatch(r"""(['"])\w+\1""", delimiter.raw):
            self._make_opaque("it holds a here-document")
        self._after_heredocs = min(position, len(self._text))
        self._stdin = "\n".join(lines)
        self._line.bodies.append(self._stdin)
        is_unquoted = delimiter.text == delimiter.raw
        if is_unquoted:
            # bash expands it as between double quotes, and a quote in it is an ordinary character.
            text = self._stdin.replace('"', "")
            _Lexer(f'"{text}"', self._line, self._depth + 1)._read_word()
