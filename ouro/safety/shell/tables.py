"""The commands that run unasked, and the options that they may have. What is not listed is asked."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


Operands = Literal[
    "files",  # read
    "file",  # read, one at most
    "pattern",  # text first, then files; only files where `-e` gives the text
    "script",  # a sed, awk or jq program first, then files
    "text",  # anything: no file is opened
    "none",
    "date",  # +FORMAT
    "find",  # starts, then an expression
    "changes",  # never unasked; the options are those that a rule such as `tar *` covers
]

_COMMANDS = """
# name | letters (# is a number: -5) | long options | options with a value (@ reads the file) | operands
cat | AbeEnstTuv | number number-nonblank show-all show-ends show-tabs squeeze-blank | | files
head | qvz# | quiet verbose | n c lines bytes | files
tail | qvz# | quiet verbose | n c lines bytes | files
wc | clLmw | bytes chars lines words max-line-length | | files
ls | AaBbCcdFfGghiklmnopQqRrSsTtUuvXxZ1 | all almost-all color directory full-time group-directories-first
    human-readable inode recursive reverse size | I w color sort time time-style format ignore hide | files
stat | Lt | terse dereference | c f format printf | files
df | ahHiklPT | all human-readable inodes | | files
du | achHklmsSx0 | all human-readable summarize total apparent-size | d max-depth exclude | files
nl | | | b v w s n body-numbering | files
tac rev unexpand expand | | | t | files
fold | s | spaces | w width | files
column | teNR | table | s o c | files
cut | ns | complement only-delimited zero-terminated | b c d f delimiter fields characters bytes output-delimiter |
    files
paste | sz | serial | d delimiters | files
comm | 123z | nocheck-order check-order total | | files
join | i | ignore-case header nocheck-order | 1 2 a e j o t v | files
strings | an | all | n t min-len | files
od | bcdox | | A t N j w | files
hexdump | Cbcdox | | n s | files
md5sum sha1sum sha256sum sha512sum cksum | bt | | | files
readlink realpath | femnqsz | canonicalize no-symlinks quiet relative | relative-to | files
cmp | bls | print-bytes silent quiet verbose | n bytes | files
uniq | cdDiuz | count repeated unique ignore-case | f s w | file
file | bhi0 | brief mime mime-type mime-encoding dereference no-dereference | | files
diff | abBcdeiNpqtTuwyZ# | brief unified side-by-side ignore-case ignore-all-space ignore-space-change
    ignore-blank-lines new-file color minimal text report-identical-files suppress-common-lines | U C W unified
    context width color label | files
sort | bdfghiMnrRsuVcCz | numeric-sort reverse unique version-sort human-numeric-sort ignore-case stable check
    general-numeric-sort zero-terminated | k t key field-separator | files
tree | adfiphsuDFCnQrtv | dirsfirst noreport prune du gitignore | L I P | files
fd | aHIpsiu0g1 | hidden no-ignore absolute-path glob case-sensitive ignore-case full-path unrestricted | t e E d
    type extension exclude max-depth min-depth color changed-within changed-before size | pattern
rg | cilnoSsvwxFHNPUuhIp0.a# | count count-matches files files-with-matches files-without-match fixed-strings hidden
    ignore-case json line-number no-heading heading no-filename no-ignore no-ignore-vcs no-line-number only-matching
    pcre2 multiline smart-case case-sensitive sort-files stats type-list vimgrep with-filename word-regexp
    invert-match trim quiet column null text pretty unrestricted multiline-dotall | A B C M g m t T e f@
    after-context before-context context color colors glob iglob max-columns max-count max-depth max-filesize regexp
    sort sortr type type-not replace r file@ | pattern
grep egrep fgrep | cEFGHhiLlnoPqrsvwxZzabT# | count extended-regexp fixed-strings perl-regexp basic-regexp recursive
    ignore-case no-ignore-case invert-match line-number files-with-matches files-without-match with-filename
    no-filename no-messages only-matching quiet silent word-regexp line-regexp color null text byte-offset | A B C m
    e f@ after-context before-context context max-count color include exclude exclude-dir regexp binary-files file@
    | pattern
sed | nErszu | quiet silent regexp-extended null-data separate unbuffered posix | e expression | script
awk gawk mawk | | | F v field-separator assign | script
jq | acCeMnrRsSj | compact-output color-output exit-status monochrome-output null-input raw-output slurp sort-keys
    join-output tab | indent | script
find | | | | find
date | uIR | utc iso-8601 rfc-email universal | d date iso-8601 rfc-3339 | date
echo printf expr tr basename dirname seq sleep which type test [ true false : exit groups id printenv | * | * | |
    text
pwd whoami uname arch nproc uptime locale getconf env | * | * | | text
set | | | | text
cd | LPe@ | | | file
command | vV | | | text
tar gtar bsdtar | AcdfjJkmpPrtuvxzZwhlSO | bzip2 create extract gzip keep-old-files list verbose xz zstd append
    update totals | f C file directory exclude strip-components X T | changes
"""

# In `git`, one list for all subcommands that only read: none of these options writes, runs a program or leaves the
# repository in any of them.
_GIT_LETTERS = "0123456789#%aBbcCdDefghiIklmMnopPqRrstTuUvwWxXzEFH"
_GIT_LONG = """
    abbrev-commit abbrev-ref absolute-git-dir all all-match author-date-order basic-regexp boundary branch
    branches break cached cc check cherry-mark cherry-pick children clear-decorations color color-moved
    color-words column combined-all-paths contains count cumulative date-order debug decorate deleted
    dereference dirstat dirty email error-unmatch exclude-standard exit-code extended-regexp files-with-matches
    files-without-match find-copies find-copies-harder find-renames first-parent fixed-strings follow fork-point
    full-history full-index full-name function-context git-common-dir git-dir graph heads ignore-all-space
    ignore-blank-lines ignore-case ignore-space-at-eol ignore-space-change ignored indent-heuristic independent
    invert-grep invert-match is-ancestor is-bare-repository is-inside-git-dir is-inside-work-tree killed
    left-only left-right line-number line-porcelain long merge merged merges minimal modified name-only
    name-status no-abbrev no-abbrev-commit no-color no-decorate no-ext-diff no-merged no-merges no-notes
    no-patch no-prefix no-renames no-textconv no-walk not null numbered numstat objects octopus oneline
    only-matching others parents patch patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex porcelain
    quiet raw reflog relative relative-date remotes remove-empty reverse right-only root score-debug short
    shortstat show-cdup show-current show-email show-function show-name show-number show-prefix show-pulls
    show-stash show-superproject-working-tree show-toplevel simplify-by-decoration simplify-merges source sparse
    squeeze stage staged stat summary symbolic symbolic-full-name symmetric tags text topo-order unified
    unmerged untracked-files verbose verify walk-reflogs word-diff word-regexp
"""
_GIT_VALUED = """
    A G L S abbrev abbrev-ref after after-context author before before-context branches candidates color
    color-moved color-moved-ws color-words committer contains context count date decorate decorate-refs
    decorate-refs-exclude diff-algorithm diff-filter dirstat encoding exclude find-copies find-object
    find-renames format glob grep ignore-submodules ignored inter-hunk-context l match max-count max-depth
    max-parents merged min-parents no-merged points-at porcelain pretty relative remotes short since skip sort
    stat stat-count stat-graph-width stat-width submodule tags unified until untracked-files word-diff
    word-diff-regex ws-error-highlight
"""
GIT_READS = names(
    """
    status log diff show blame shortlog rev-parse ls-files ls-tree describe rev-list cat-file grep merge-base
    name-rev count-objects whatchanged for-each-ref show-ref diff-tree version show-branch cherry
    """
)
"""Subcommands that only read, with the options above."""
VERSIONED = names(
    """
    python python3 node npm cargo rustc gcc clang make cmake ruby perl java uv pip pip3 ruff mypy pytest docker
    git bash rg fd yarn pnpm deno bun poetry
    """
)
"""Commands that may be asked for their version."""
STARTING_WITH_PATTERNS = names(
    """
    cat head tail wc ls stat df du nl tac rev fold expand unexpand cut paste grep egrep fgrep strings md5sum
    sha256sum
    """
)
"""Commands whose file may be a pattern that starts with `*`: an option that a file name becomes does not matter."""
FIND_EXPRESSION = re.compile(
    r"-(name|iname|path|ipath|wholename|regex|iregex|type|size|mtime|mmin|atime|amin|ctime|cmin|maxdepth|mindepth|perm"
    r"|user|group|links|empty|not|o|a|or|and|print|print0|ls|prune|executable|readable|writable|true|false|depth|xdev"
    r"|mount|daystart|quit|inum|regextype|nouser|nogroup|noleaf|printf)|[!(),]"
)
TEST_WORDS = re.compile(r"-(e|f|d|r|w|x|s|L|h|z|n|b|c|p|S|a|o|eq|ne|lt|le|gt|ge|nt|ot|ef|\d+)|-")


class Reader(msgspec.Struct, frozen=True):
    letters: str
    long: frozenset[str]
    valued: frozenset[str]
    files: frozenset[str]
    """The options whose value is a file that is read."""
    operands: Operands


@cache
def readers() -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    for line in re.sub(r"\n    +", " ", _COMMANDS).strip().splitlines()[1:]:
        names, letters, long, valued, operands = (cell.strip() for cell in line.split("|"))
        row = msgspec.convert(
            {
                "letters": letters,
                "long": long.split(),
                "valued": [name.removesuffix("@") for name in valued.split()],
                "files": [name.removesuffix("@") for name in valued.split() if name.endswith("@")],
                "operands": operands,
            },
            Reader,
        )
        found |= dict.fromkeys(names.split(), row)
    return found


GIT_READER = Reader(_GIT_LETTERS, frozenset(_GIT_LONG.split()), frozenset(_GIT_VALUED.split()), frozenset(), "files")
