"""A fuzzer of the shell judge against bash: `python -m tests.fuzz_judge --seconds 600 --seed 7`.

Random lines are judged in mode `ask`. Each line that is allowed without a question is run by bash,
without ouro's sandbox, in a scratch folder. It fails if a file changes, if a program that no
allowed line may start creates its mark, or if something outside of the workspace is opened. A
failing line is shortened and printed. The lines of `fixtures/shell_lines_with_effect.txt` are run
first: each must have an effect.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

from ouro.safety import Allow, Effect, Permissions, Workspace, child_environment
from ouro.safety.shell.tables import LISTS, rows
from ouro.utils import git

SECRET = "canary-5c1f0b"
STUBS = """
    mark sh bash dash zsh ksh python python3 perl ruby node php less more pager man vi vim ed editor curl wget nc ssh
    scp gpg sudo make gcc cc pip uv npm docker tar systemctl kill pkill xdg-open
""".split()
_IN_OPEN, _IN_ACCESS, _IN_NONBLOCK = 0x20, 0x01, 0x800
_SHRINK_TRIES = 400
_BASH = shutil.which("bash") or "/bin/bash"
_RUN = 'ulimit -f 4000; ulimit -t 2; for line; do "$0" -c -- "$line"; done'
_RUN_IN_KEEPER = _RUN + "; while set -- /proc/[0-9]*; [ $# -gt 2 ]; do sleep 0.01; done"
"""Waits for what a line left in the background: with the last process of the keeper it would be killed
before it had an effect. Two processes are left: bubblewrap and this shell.
"""
_LINE_TIMEOUT = 2.0
_BATCH = 16
_KEEPER = [
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net",
    "--die-with-parent", "--cap-drop", "ALL",
]  # fmt: skip
"""Options of bubblewrap: only the scratch folder can change. Lines with an effect are run by root,
too.
"""

FILES = {
    "a.txt": "one\ntwo 2\nthree,3\n", "a2.txt": "one\n2\n", "b.csv": "x,y\n1,2\n", "data.json": '{"a": [1, "b"]}\n',
    "prog.awk": 'BEGIN { system("mark") }\n', "prog.sed": "1e mark\nw made\n", "prog.jq": "import \"x\" as x; .\n",
    "names": "../outside/key.txt\n", "src/x.py": "import os\n", "src/deep/y.txt": "y\n",
    "opts/--output=made": "", "opts/-o": "", "opts/made": "x\n", "opts/a.txt": "one\n", "mark me": "one\n",
}  # fmt: skip
LINKS = {"out": "../outside", "src/key": "../../outside/key.txt", "link": "src/deep"}
PATHS = [
    "a.txt", "a.txt", "a2.txt", "b.csv", "data.json", "src", ".", "src/x.py", "a*", "*.txt", "src/*", "*", "?.txt",
    "[a-b]*", "*/*", "src/../a.txt", "link/../x.py", "link/..", "out", "out/key.txt", "src/key", "..", "-", "--",
    "../outside/key.txt", "~/.ssh/id_rsa", "$HOME/.ssh/id_rsa", "~+/a.txt", "made", "prog.awk", "prog.sed", "names",
    "@names", "/dev/null", "/dev/stdin", "/proc/self/cwd/../outside/key.txt", "opts/*", "opts", "opts/--output=made",
    "-o", "-f", "+1", "./-o", "HEAD", "HEAD:a.txt", ":a.txt", "'mark me'", "o*", "/", "~", "/*/../made", "x=~/.ssh",
]  # fmt: skip
VALUES = [
    "1", "2", "0", "x", ",", "one", "made", "a.txt", "%s", "'%n %f'", "always", "+%s", "names", "'a[$(mark)]'",
    "'|mark'", "../outside/key.txt", "src", "out", "*.txt", "/", "json", "-", "--", "-o", "''", "'{}'", "ext::mark",
    "@names",
]  # fmt: skip
SED = [
    "p", "d", "q", "=", "1", "$", ",", "!", ";", "\n", " ", "{", "}", "w made", "w", "e", "e mark", "r out/key.txt",
    "R names", "W made", "s/one/mark/", "s/one/mark/e", "s,o,x,w made", "s/o/x/g;w made", "/one/", "\\,one,", "\\",
    "y/o/x/", "a\\", "i x", "F", "s|a|b|;e", "s/[/]w made/x/", "s:a:b:p", "s@a@\\\n@", "#n", "l", "s/a/b/", "M", "I",
    "gw", "s/x/\\n/;", "/a/;", "2,/b/", "+1", "~2", "s#a#b#", "0~1", "/[/]/", "s/a\\/b/c/", "/\\/w made/", "e;",
    "\\e",
]  # fmt: skip
AWK = [
    "{print}", "{print $1}", "BEGIN", "END", "{", "}", "print", "$0", "$1", "NR==1", ";", "\n", " ", "x=1", "if(1)",
    '> "made"', '>>"made"', 'system("mark")', 'system ("mark")', '"mark"|getline', 'print|"mark"', "getline x<f",
    "close(x)", "length($0)", "substr($0,1)", "#", "\\", "/one/", "/>/", '"a"', '">"', "printf", "sys", "tem", "(",
    ")", "func", "function f(){}", "@load", "-f", "ENVIRON", "!", "~", "split($0,a)", '"\\""', "fflush()", "&&",
    "getline",
]  # fmt: skip
JQ = [
    ".", ".a", "[", "]", "|", "keys", "input", "inputs", "env", "$ENV", "import", "include", '"x"', "{", "}", "(",
    ")", 'import "x" as x {search:"../outside"};', "@sh", "input_filename", "debug", "length", ";", "#", "\n",
    "def f:",
]  # fmt: skip
TEST = [
    "-e", "-f", "a.txt", "-v", "-R", "'a[$(mark)]'", "-eq", "1", "=", "==", "!=", "]", "!", "-a", "-o", "-t", "-n",
    "x", "\\(", "\\)", "\\>", ">", "<", "'x[0]'", "-nt", "-z",
]  # fmt: skip
VARIABLES = ["f", "f", "f", "line", "F", "PATH", "IFS", "BASH_ENV", "HOME"]
PRINTF = [
    "-v", "-vx", "'a[$(mark)]'", "%s", "'%(%s)T'", "%b", "x", "--", "'%*d'", "1", "%d", "'a[0]=1'", "%n",
]  # fmt: skip
FIND = [
    "-name", "'*.txt'", "-type", "f", "-exec", "mark", "{}", "\\;", "+", "-delete", "-print", "-fprint", "made",
    "-fls", "-ok", "-path", "-newer", "a.txt", "-printf", "%p", "-L", "-follow", "-maxdepth", "1", "!", "-o", "\\(",
    "\\)", "-prune", "-size", "-perm", "-execdir", "-files0-from", "names", "-regex", "x", "-fprintf", "-samefile",
]  # fmt: skip
TRICKS = [
    "\\\n", "\\\n", "\n", "\\", "'", '"', "$", "`", "$(mark)", "`mark`", "$'", "${", "}", "$((", "))", "<(", ">(",
    "> made", ">made", ">>a.txt", ">|made", "&>made", ">&made", "2>made", "<>made", "<out/key.txt", "< a.txt", "2>&1",
    ">/dev/null", "&", "&&", "||", "|", ";", "|&", ";;", "!", "#", " #", "\t", "\\ ", "\\\\", "\\'", '\\"', "{a,b}",
    "{", "(", ")", "()", "<<A\n", "<<<", "\nA\n", "x=1 ", "PATH=. ", "LC_ALL=C ", "BASH_ENV=prog.awk ",
    "GIT_PAGER=mark ", "$x", "${x}", "$IFS", "$HOME", "${HOME}", "${x:=y}", "${!x}", "$?", "$#", "$@", "$-", "$_",
    "~", "~+", "*", "?", "[a]", "[", "]", "if", "then", "time ", "env ", "exec ", "command ", "eval ", "builtin ",
    "nice ", "xargs ", "coproc ", "timeout 1 ", "; mark", "\nmark", "|mark", "&mark", "\\mark", "$(", "\r", "\x01",
    "\xa0", "é", "mark", "touch made", "cd ..;", "cd src && ", "cd link/..;", "cd out;", "cd opts && ", "cd - ;",
    "x=a.txt; ", "x=-o\n", "x='w made'; ", "x=made && ", "{1..2}", "{a.txt,-o}", "{a,b}.txt", "$(seq 2)", "$((1+1))",
    "<(cat a.txt)", "<(mark)", "GIT_PAGER=cat ", "-c core.pager=cat ", "-c core.pager=mark ",
    "set -x;", "alias ls=mark;", "{ ", "; }", "--", "-x", "=", ",", "@(a|b)", "!(a)",
]  # fmt: skip

UNSEEN = "that need a terminal, a server, another tool or another state of the repository"
"""The cause of lines of the battery whose effect cannot be seen here."""


def shell_lines(name: str) -> dict[str, list[str]]:
    """The lines of a file of `fixtures` by cause. There `␊` is a newline, and `⟨9⟩` the character
    of that number.
    """
    found: dict[str, list[str]] = {}
    cause: list[str] = []
    for line in (
        Path(__file__)
        .with_name("fixtures")
        .joinpath(f"{name}.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        if line.startswith("# "):
            cause = found.setdefault(line[2:], [])
        elif line:
            cause.append(
                re.sub("⟨([0-9a-f]+)⟩", lambda code: chr(int(code[1], 16)), line.replace("␊", "\n"))
            )
    return found


class Judge:
    """Runs allowed lines in a scratch folder, and finds their effects."""

    def __init__(self, base: Path, home: Path) -> None:
        self._base, self.root, self._home = base, base / "app", home
        self._permissions = {
            mode: Permissions(Workspace(self.root), mode) for mode in ("ask", "plan")
        }
        folders = (
            option for folder in (base, home) for option in ("--bind", str(folder), str(folder))
        )
        self.keeper = ["bwrap", *_KEEPER, *folders] if shutil.which("bwrap") else []
        """The command that starts a line; empty if bubblewrap does not work."""
        self._inotify = (
            ctypes.CDLL(None).inotify_init1(_IN_NONBLOCK) if sys.platform == "linux" else -1
        )
        self.renew()
        if not self.effect("> made"):
            self.keeper = []
        self.renew()

    def allows(self, line: str, mode: str = "ask") -> bool:
        """Whether a line is allowed. The state of the repository is read once: no allowed line may
        change it.
        """
        with patch.object(git, "_run_git", self._ask_git):
            return isinstance(self._permissions[mode].decide("shell", Effect.RUN, [line]), Allow)

    def effect(self, *lines: str) -> str:
        """The forbidden effects of lines; empty if there are none."""
        self._opened()
        output = self._base / "output"
        with output.open("wb") as file:
            done = subprocess.run(
                [
                    *("timeout", "-s", "KILL", str(_LINE_TIMEOUT * len(lines))), *self.keeper,
                    *("/bin/sh", "-c", _RUN_IN_KEEPER if self.keeper else _RUN, _BASH, *lines),
                ],
                cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False,
            )  # fmt: skip
        if (
            done.returncode in (137, -9) and len(lines) > 1
        ):  # one of them took too long: the rest did not run
            return next(filter(None, map(self.effect, lines)), "")
        opened, after = self._opened(), self.state()
        changed = sorted(path for path, _ in after.items() ^ self._before.items())
        if changed:
            return f"changed {', '.join(dict.fromkeys(changed))}"
        if opened:
            return "opened something outside of the workspace"
        return (
            "printed a file outside of the workspace"
            if SECRET.encode() in output.read_bytes()
            else ""
        )

    def is_hole(self, line: str) -> str:
        """The effect of a line if it is allowed; after an effect the scratch folder is new."""
        if not self.allows(line) or not (found := self.effect(line)):
            return ""
        self.renew()
        return found

    def shrink(self, line: str) -> str:
        """The shortest part of the line that still has the effect."""
        size, tries = len(line) // 2, 0
        while size:
            at = 0
            while at < len(line) and tries < _SHRINK_TRIES:
                shorter, tries = line[:at] + line[at + size :], tries + 1
                if self.is_hole(shorter):
                    line = shorter
                else:
                    at += size
            size //= 2
        return line

    def renew(self) -> None:
        """Create a new scratch folder."""
        self._ask_git = cache(git._run_git)
        shutil.rmtree(self._base, ignore_errors=True)
        texts = {f"app/{name}": text for name, text in FILES.items()} | {
            "outside/key.txt": f"{SECRET}\n"
        }
        texts |= {f"stubs/{name}": f"#!/bin/sh\n: > {self._base}/marks/{name}\n" for name in STUBS}
        for name, text in texts.items():
            (self._base / name).parent.mkdir(parents=True, exist_ok=True)
            (self._base / name).write_text(text)
        for path in (self._base / "stubs").iterdir():
            path.chmod(0o755)
        (self.root / "mark").write_text((self._base / "stubs" / "mark").read_text())
        (self.root / "mark").chmod(0o755)
        (self._base / "marks").mkdir()
        for name, target in LINKS.items():
            (self.root / name).symlink_to(target)
        (self._home / ".ssh").mkdir(parents=True, exist_ok=True)
        (self._home / ".ssh" / "id_rsa").write_text(f"{SECRET}\n")
        path = f"{self._base}/stubs:{os.environ['PATH']}"
        self._environment = child_environment(
            {"PATH": path, "HOME": str(self._home), "GIT_CONFIG_NOSYSTEM": "1"}
        )
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            name = [
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@example.invalid",
                "-c",
                "core.fsync=none",
            ]
            subprocess.run(
                ["git", *name, *arguments], cwd=self.root, env=self._environment, check=True
            )
        if self._inotify >= 0:
            for folder in (self._base / "outside", self._home / ".ssh"):
                ctypes.CDLL(None).inotify_add_watch(
                    self._inotify, os.fsencode(folder), _IN_OPEN | _IN_ACCESS
                )
        self._before = self.state()

    def _opened(self) -> bool:
        """Whether something outside of the workspace was opened since the last call."""
        try:
            return self._inotify >= 0 and bool(os.read(self._inotify, 1 << 16))
        except BlockingIOError:
            return False

    def state(self) -> dict[str, tuple[int, ...]]:
        """Every file of the scratch folder and the home, with the values that a change alters."""
        found: dict[str, tuple[int, ...]] = {}
        folders = [str(self._base), str(self._home)]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder:
                        folders.append(entry.path)
                    # The output of the line; and the index, which git refreshes.
                    if entry.path != f"{self._base}/output" and not entry.path.endswith(
                        "/.git/index"
                    ):
                        times = () if is_folder else (status.st_size, status.st_mtime_ns)
                        found[entry.path] = (status.st_mode, status.st_ino, *times)
        return found


class Lines:
    """Random lines: commands of the tables with their options, and pieces with a meaning in bash."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        kinds = ("files", "file", "pattern", "script", "changes")
        found = [
            (name, row)
            for name, row in rows().items()
            if row.operands in kinds and shutil.which(name)
        ]
        self._rows = dict(found) | {
            name: row for name, row in rows().items() if row.operands == "text"
        }
        self._git_rows = {name[4:]: row for name, row in rows().items() if row.operands == "git"}

    def __iter__(self) -> Iterator[str]:
        while True:
            line = self._line()
            for _ in range(self._random.choice((0, 0, 0, 1, 1, 2))):
                at = self._random.randint(0, len(line))
                end = at + self._random.choice((0, 0, 0, 1, 2))
                line = (
                    line[:at]
                    + self._random.choice(("", " "))
                    + self._random.choice(TRICKS)
                    + line[end:]
                )
            yield line

    def _line(self) -> str:
        choose = self._random.choice
        line = self._command() if choose((True, True, False)) else self._block()
        for _ in range(choose((0, 0, 0, 1, 2))):
            line += (
                choose((" | ", " && ", " || ", "; ", "\n", " > /dev/null; ", " 2>&1 | "))
                + self._command()
            )
        return line

    def _block(self) -> str:
        """A loop, a group, a here-document, or a command that runs another, with a command or two
        inside.
        """
        choose = self._random.choice
        name, inside = choose(VARIABLES), f"{self._command()}{choose(('', f'; {self._command()}'))}"
        for _ in range(choose((1, 1, 2))):
            used = choose(
                [f"${name}", f'"${name}"', f'"x/${name}"', f"${{{name}}}x", "{}", '"$(echo one)"']
            )
            at = choose([at for at, char in enumerate(inside) if char == " "] or [0])
            inside = f"{inside[:at]} {used}{inside[at:]}"
        first = inside.partition(";")[0]
        words = " ".join(self._some([*PATHS, *VALUES, "-o", "mark", "touch", "'a b'"], 4))
        end = choose(("", "", f" < {choose(PATHS)}", f" | {self._command()}", " > /dev/null"))
        find = " ".join(
            ["find", choose((".", "src", "link", "src/deep", "src/deep")), *self._some(FIND, 2)]
        )
        names = choose(
            [
                find,
                find,
                "rg -l y src/deep",
                "rg --files src/deep",
                "git ls-files",
                "ls",
                "cat names",
            ]
        )
        names += choose(("", " | head", " | sort -r", " | grep -v x"))
        separator, read = choose(("; ", "\n")), choose(("read", "IFS= read -r", "read -r"))
        return choose([
            f"for {name} in {words}{separator}do {inside}; done{end}",
            f"for {name} in {words}{separator}do {inside}; done{end}",
            f"while {read} {name}; do {inside}; done{end or ' < names'}",
            f"{names} | while {read} {name}; do {inside}; done",
            f"if {self._command()}; then {inside}; {choose(('', f'else {self._command()}; '))}fi{end}",
            f"if [[ {' '.join(self._some(TEST, 3))} ]]; then {inside}; fi",
            f"({inside}){end}",
            f"{{ {inside}; }}{end}",
            f"{first} <<{choose(('A', repr('A'), '-A'))}{choose(('', end))}\n$(mark)\nx\nA\n{inside}",
            f"{find} -exec {first} {choose(('{} +', '+', chr(92) + ';', '{} ' + chr(92) + ';'))}",
            f"{names} | xargs {choose(('', '-0 ', '-n1 ', '-I{} '))}{first}",
        ])  # fmt: skip

    def _command(self) -> str:
        choose, roll = self._random.choice, self._random.random()
        if roll < 0.15:
            return self._git()
        if roll < 0.22:
            return " ".join(
                ["find", *self._some([".", "src", "a.txt", "link"], 1), *self._some(FIND, 5)]
            )
        if roll < 0.32:
            return " ".join(
                [choose(("test", "[", "printf", "printf")), *self._some([*TEST, *PRINTF], 4)]
            )
        if roll < 0.45:
            return self._script(
                *choose((("sed", SED), ("sed -n", SED), ("awk", AWK), ("jq", JQ), ("sed -E", SED)))
            )
        name = choose([*self._rows])
        row = self._rows[name]
        words = [name]
        for _ in range(choose((0, 1, 1, 2, 3))):
            known = row.letters.replace("*", "abc").replace("#", "5") or "n"
            letters = "".join(self._some([*known], 3))
            valued = [*row.valued, "o", "output", "f"]
            words += choose([
                [f"-{letters}"],
                [f"--{choose([*row.long, 'output'])}"],
                [self._option(choose(valued), choose(VALUES))],
                [choose(["-o", "-f", "-e", "-i", "--", "--out=made", "-s", "-x", "-a names", "-L"])],
            ])  # fmt: skip
        return " ".join([*words, *self._some([*PATHS, *VALUES], 3)])

    def _option(self, name: str, value: str) -> str:
        if len(name) == 1:
            return f"-{name}{self._random.choice(('', ' '))}{value}"
        return f"--{name}{self._random.choice(('=', ' '))}{value}"

    def _git(self) -> str:
        choose = self._random.choice
        subcommand = choose(
            [*self._git_rows, *(name[4:] for name in LISTS if name.startswith("git "))]
        )
        row = self._git_rows["log"]
        words = [
            "git",
            *self._some(["--no-pager", "-C src", "-C ..", "-p", "-c core.pager=mark"], 1, 0.1),
            subcommand,
        ]
        for _ in range(choose((0, 1, 1, 2, 3))):
            words.append(choose([
                f"-{choose([*row.letters])}",
                f"--{choose([*row.long])}",
                self._option(choose([*row.valued]), choose([*VALUES, "%G?", "mark"])),
                choose([
                    "--output=made", "--ext-diff", "--textconv", "-O", "-O./mark", "--open-files-in-pager=mark",
                    "--help", "--no-index", "-l", "show",
                ]),
            ]))  # fmt: skip
        return " ".join([*words, *self._some([*PATHS, "HEAD", "HEAD", "--", "main"], 3)])

    def _script(self, command: str, pieces: list[str]) -> str:
        choose = self._random.choice
        scripts = ["".join(self._some(pieces, 6)) for _ in range(choose((1, 1, 1, 2)))]
        quoted = [
            shlex.quote(script) if choose((True, True, False)) else f'"{script}"'
            for script in scripts
        ]
        if command.startswith("sed") and choose((True, False)):
            quoted = [choose(("-e ", "--expression=", "-e")) + script for script in quoted]
        return " ".join([command, *quoted, *self._some(PATHS, 2)])

    def _some(self, pieces: list[str], most: int, chance: float = 1.0) -> list[str]:
        if self._random.random() > chance:
            return []
        return [self._random.choice(pieces) for _ in range(self._random.randint(0, most))]


def within(seconds: float, lines: Iterable[str]) -> Iterator[str]:
    """The lines until the time is over."""
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, lines)


def fuzz(
    judge: Judge, lines: Iterable[str], most_found: int = 1
) -> tuple[list[tuple[str, str]], int]:
    """The shortened lines that were allowed and had an effect, with the effect; and the number of
    allowed lines.
    """
    found: list[tuple[str, str]] = []
    batch: list[str] = []
    ran = 0
    for line in lines:
        if len(found) >= most_found:
            break
        batch += [line] if line not in batch and judge.allows(line) else []
        if len(batch) < _BATCH:
            continue
        ran += len(batch)
        if effect := judge.effect(*batch):
            judge.renew()
            holes = [judge.shrink(line) for line in batch if judge.is_hole(line)]
            found += [(hole, judge.is_hole(hole)) for hole in holes] or [("\n".join(batch), effect)]
        batch = []
    return found, ran


def without_effect(judge: Judge) -> list[str]:
    """The lines of the battery that have no effect here, or are allowed."""
    found = []
    for cause, lines in shell_lines("shell_lines_with_effect").items():
        for line in lines:
            effect = judge.effect(line)
            if effect:
                judge.renew()
            if judge.allows(line) or not (effect or cause == UNSEEN):
                found.append(line)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--holes", type=int, default=10, help="stop after this many")
    parser.add_argument("--battery", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        os.environ["HOME"] = str(base / "home")
        judge = Judge(base / "scratch", base / "home")
        idle = without_effect(judge) if options.battery and judge.keeper else []
        found, ran = fuzz(judge, within(options.seconds, Lines(options.seed)), options.holes)
    for line in idle:
        print(f"allowed, or without an effect: {line!r}")
    print(f"seed {options.seed}: {ran} lines ran unasked, {len(found)} had an effect")
    for line, effect in found:
        print(f"  {line!r}\n    {effect}")
    return bool(found or idle)


if __name__ == "__main__":
    sys.exit(main())
