"""The meaning of the options of commands, and which run without asking. What is not listed needs a
question.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec

from ouro.utils.decoding import from_plain


def names(text: str) -> frozenset[str]:
    """Returns the words of a text as a set."""
    return frozenset(text.split())


Operands = Literal[
    "files",  # read
    "file",  # read, one at most
    "pattern",  # text first, then files; only files where an option gives the text
    "script",  # text that SCRIPTS allows, then files
    "text",  # text that SCRIPTS allows; no file is opened
    "git",  # as files, for a subcommand that only reads
    "changes",  # always asked; the options are those that a rule such as `tar *` covers
    "memory",  # a subcommand of git that runs on memory without asking
    "command",  # a command, which is judged instead
    "wrapped",  # a command; this one is asked too
    "any",  # always asked, like all below
    "written",
    "but first",  # all but the first are written
    "last",  # the last is written
]

_COMMANDS = """
# names | letters (# is a number: -5; * is any text) | long options | options with a value, and its marks | operands
cat | AbeEnstTuv | number number-nonblank show-all show-ends show-tabs squeeze-blank | | files
head | qvz# | quiet verbose | n c lines bytes | files
tail | qvz# | quiet verbose | n c lines bytes | files
wc | clLmw | bytes chars lines words max-line-length | | files
ls | AaBbCcdFfGghiklmnopQqRrSsTtUuvXxZ1 | all almost-all color directory full-time group-directories-first
    human-readable inode recursive reverse size | I w color sort time time-style format ignore hide | files
stat | L | terse dereference | c f@ format printf | files
df | ahHiklPT | all human-readable inodes | | files
du | achHklmsSx0 | all human-readable summarize total apparent-size | d max-depth exclude | files
nl | | | b v w s n body-numbering | files
tac rev unexpand expand | | | t | files
fold | s | spaces | w width | files
column | te | table | s o c N R | files
cut | ns | complement only-delimited zero-terminated | b c d f delimiter fields characters bytes output-delimiter |
    files
paste | sz | serial | d delimiters | files
comm | 123z | nocheck-order check-order total | | files
join | i | ignore-case header nocheck-order | 1 2 a e j o t v | files
shuf | z | | n i | file
strings | an | all | n t min-len | file
base64 | di | decode | w wrap | file
zcat xzcat bzcat | | | | files
od | bcdox | | A t N j | files
hexdump | Cbcdox | | n s | files
xxd | bCEipu | | c g l s | file
md5sum sha1sum sha256sum sha512sum cksum | bt | | | files
readlink realpath | femnqsz | canonicalize no-symlinks quiet relative | relative-to | files
cmp | bls | print-bytes silent quiet verbose | n bytes | files
uniq | cdDiuz | count repeated unique ignore-case | f s w | file
file | bhi0L | brief mime mime-type mime-encoding dereference no-dereference | | files
diff | abBcdeiNpqrtTuwyZ# | brief recursive unified side-by-side ignore-case ignore-all-space ignore-space-change
    ignore-blank-lines new-file color minimal text report-identical-files suppress-common-lines | U C W unified
    context width color label x exclude | files
sort | bdfghiMnrRsuVcCz | numeric-sort reverse unique version-sort human-numeric-sort ignore-case stable check
    general-numeric-sort zero-terminated | k t key field-separator o>! output>! | files
tree | adfiphsuDFCnQrtvJ | dirsfirst noreport prune du gitignore | L I P | files
fd | aHIpsiu0g1 | hidden no-ignore absolute-path glob case-sensitive ignore-case full-path unrestricted | t e E d
    type extension exclude max-depth min-depth color changed-within changed-before size | pattern
rg | cilnoSsvwxFHNPUuhIp0.a# | count count-matches files files-with-matches files-without-match fixed-strings hidden
    ignore-case json line-number no-heading heading no-filename no-ignore no-ignore-vcs no-line-number only-matching
    pcre2 multiline smart-case case-sensitive sort-files stats type-list vimgrep with-filename word-regexp
    invert-match trim quiet column null text pretty unrestricted multiline-dotall | A B C M g m t T e f@
    after-context before-context context color colors glob iglob max-columns max-count max-depth max-filesize regexp
    sort sortr type type-not replace r file@ | pattern
grep egrep fgrep | cEFGHhIiLlnoPqrsvwxZzabT# | count extended-regexp fixed-strings perl-regexp basic-regexp recursive
    ignore-case no-ignore-case invert-match line-number files-with-matches files-without-match with-filename
    no-filename no-messages only-matching quiet silent word-regexp line-regexp color null text byte-offset | A B C m
    e f@ after-context before-context context max-count color include exclude exclude-dir regexp binary-files file@
    | pattern
sed | nErszu | quiet silent regexp-extended null-data separate unbuffered posix | e expression | script
awk gawk mawk | | | F v field-separator assign | script
jq | acCeMnrRsSj | compact-output color-output exit-status monochrome-output null-input raw-output slurp sort-keys
    join-output tab | indent arg+ argjson+ | script
yq | rCM | | | script
date | uIR | utc iso-8601 rfc-email universal | d date iso-8601 rfc-3339 | text
echo expr tr basename dirname seq sleep which type true false : groups id printenv pwd whoami uname nproc uptime
    locale umask getconf test [ printf set exit break continue ulimit tty free lscpu whereis | * | | | text
hostname | | | | text
pgrep | aflnovxiwc | list-name list-full full count newest oldest exact ignore-case | u U P g t | text
ss | tulnpaHsewio46 | tcp udp listening numeric processes all summary | | text
netstat | tulnpaersiv46 | | | text
cd | LPe@ | | | file
tar gtar bsdtar | AcdfjJkmpPrtuvxzZwhlSO | bzip2 create extract gzip keep-old-files list verbose xz zstd append
    update totals | f> C> file> directory> exclude strip-components X T | changes
rm rmdir unlink tee touch truncate mkdir shred mkfifo | | | | written
mv | | | t> target-directory> | written
chmod chown chgrp | | | | but first
cp ln install | | | t> target-directory> | last
rsync scp split csplit | | | | last
curl | | | o> output> output-dir> D> dump-header> c> cookie-jar> trace> trace-ascii> stderr> libcurl> | any
curl-here | fgGIiksSvN | compressed fail fail-with-body get head include insecure no-buffer no-progress-meter
    retry-connrefused show-error silent verbose | A b c d F H m o w X connect-timeout data data-binary data-raw
    data-urlencode form header json max-time output request retry retry-delay retry-max-time user-agent write-out | any
wget | | | O> output-document> P> directory-prefix> o> output-file> a> append-output> | any
unzip | | | d> | any
patch | | | o> output> d> directory> r> reject-file> | any
gcc g++ cc clang ld pandoc | | | o> | any
make | | | C> directory> | any
env | | | u! C! S! unset! chdir! split-string! | command
nice | # | | n adjustment! | command
timeout | | | s! k! signal! kill-after! | command
xargs | 0rt | | n P L I d a! s! E! max-args! max-procs! delimiter! replace! arg-file! max-lines! max-chars! | command
ionice | | | c n class classdata | wrapped
stdbuf | | | i o e input output error | wrapped
exec | | | a | wrapped
time | | | f o format output | wrapped
command builtin nohup coproc setsid noglob nocorrect | | | | wrapped
git | P | no-pager no-optional-locks literal-pathspecs version | C> c git-dir>! work-tree>! exec-path! namespace!
    config-env! | command
git-add | Auv | all update verbose | | memory
git-commit | qa | quiet all no-edit allow-empty | m message trailer | memory
git-mv | v | verbose | | memory
git-rm | q | quiet cached | | memory
git-restore | Sq | staged quiet | | memory
git-status git-log git-diff git-show git-blame git-shortlog git-rev-parse git-ls-files git-ls-tree git-describe
    git-rev-list git-cat-file git-grep git-merge-base git-name-rev git-count-objects git-whatchanged git-for-each-ref
    git-show-ref git-diff-tree git-version git-show-branch git-cherry git-check-ignore
    | 0123456789#%aBbcCdDefghiIklmMnopPqRrstTuUvwWxXzEFH |
    abbrev-commit abbrev-ref absolute-git-dir all all-match always author-date-order basic-regexp boundary branch
    branches break cached cc check cherry-mark cherry-pick children clear-decorations color color-moved color-words
    column combined-all-paths contains count cumulative date-order debug decorate deleted dereference dirstat dirty
    email error-unmatch exclude-standard exit-code extended-regexp files-with-matches files-without-match
    find-copies find-copies-harder find-renames first-parent fixed-strings follow fork-point full-history full-index
    full-name function-context git-common-dir git-dir graph heads ignore-all-space ignore-blank-lines ignore-case
    ignore-space-at-eol ignore-space-change ignored indent-heuristic independent invert-grep invert-match
    is-ancestor is-bare-repository is-inside-git-dir is-inside-work-tree killed left-only left-right line-number
    line-porcelain long merge merged merges minimal modified name-only name-status no-abbrev no-abbrev-commit no-index
    no-color no-decorate no-ext-diff no-merged no-merges no-notes no-patch no-prefix no-renames no-textconv no-walk
    not null numbered numstat objects octopus oneline only-matching others parents patch patch-with-stat patience
    perl-regexp pickaxe-all pickaxe-regex porcelain quiet raw reflog relative relative-date remotes remove-empty
    reverse right-only root score-debug short shortstat show-cdup show-current show-email show-function show-name
    show-number show-prefix show-pulls show-stash show-superproject-working-tree show-toplevel
    simplify-by-decoration simplify-merges source sparse squeeze stage staged stat summary symbolic
    symbolic-full-name symmetric tags text topo-order unified unmerged untracked-files verbose verify walk-reflogs
    word-diff word-regexp
    |
    A G L S abbrev abbrev-ref after after-context author before before-context branches candidates color color-moved
    color-moved-ws color-words committer contains context count date decorate decorate-refs decorate-refs-exclude
    diff-algorithm diff-filter dirstat encoding exclude find-copies find-object find-renames format glob grep
    ignore-submodules ignored inter-hunk-context match max-count max-depth max-parents merged min-parents no-merged
    points-at porcelain pretty relative remotes short since skip sort stat stat-count stat-graph-width stat-width
    submodule tags unified until untracked-files word-diff word-diff-regex ws-error-highlight output>!
    | git
"""


# `s/old/new/g` and `y/abc/xyz/` of sed, with any of these delimiters.
_SUBSTITUTE = r"[sy](?P<d>[/|#,:@])(\\.|(?!(?P=d))[^\\\n;])*(?P=d)(\\[^\n]|(?!(?P=d))[^\\\n;])*(?P=d)[gIip0-9]*"
_SED_ADDRESS = r"(\d+|\$|/(\\[^\n]|[^/\\\n])*/)"
_AWK_CALLS = (
    "if|for|while|print|printf|length|substr|split|gsub|sub|match|index|tolower|toupper|sprintf|int"
)
# A script that reads no other file, writes none, starts no program, and calls only these functions.
_AWK_SCRIPT = re.compile(
    r"(?!.*(getline|system|ARGV|ENVIRON|PROCINFO|SYMTAB|close|fflush|func|(?<!\|)\|(?!\|)|[@`]|\\(?![tns./$^*+()\[\]-])|/inet"
    rf"|\b(?!({_AWK_CALLS})\b)[A-Za-z_]\w*\s*\()"
    # Only after the first brace: after each of thousands of braces it took a second.
    r")(?![^{]*+\{(?>if ?\([\w$. ]+>[\w$. ]+\)|>=|[^>])*+>).*",
    re.DOTALL,
)
SCRIPTS = {
    "date": re.compile(r"\+.*"),
    **dict.fromkeys(("exit", "break", "continue"), re.compile(r"\d+")),
    "ulimit": re.compile(r"-[acdfHlmnpsStuv]+"),
    "hostname": re.compile(r"(?!)"),  # with a name it sets it
    "umask": re.compile(r"-S"),
    "yq": re.compile(
        r'\.([\w.\[\]]|"[\w ./-]*")*( *\| *(\.([\w.\[\]]|"[\w ./-]*")*|keys|length|type))*'
    ),
    "printf": re.compile(r"(?!-v)(?!.*%[#'+ 0-9.*hjlLtz-]*n).*", re.DOTALL),  # `%n` sets a variable
    "set": re.compile(r"[-+][euxo]+|pipefail"),
    **dict.fromkeys(
        ("test", "["),
        re.compile(
            r"-(e|f|d|r|w|x|s|L|h|z|n|b|c|p|S|a|o|eq|ne|lt|le|gt|ge|nt|ot|ef|\d+|)|(?!-).*",
            re.DOTALL,
        ),
    ),
    # Commands, after addresses, that name no file and no program, and a, i and c with the rest as
    # text; no s///e.
    "sed": re.compile(
        rf"(\s*+({_SED_ADDRESS}(\s*+,\s*+(\+?\d+|{_SED_ADDRESS}))?)?\s*+!?\s*+"
        rf"([dDgGhHnNpPqx=]|:\w+|[bt]( *\w+)?|{_SUBSTITUTE}|[aic](\\\n)?([^\n\\]|\\[^\n])*+\Z)\s*+(;|\Z))+"
    ),
    # Only calls of these functions; no file, pipe or program.
    **dict.fromkeys(("awk", "gawk", "mawk"), _AWK_SCRIPT),
    "jq": re.compile(
        r"(?!.*(\b(import|include|modulemeta|get_search_list|env|input_filename|debug|stderr)\b|\$(?![a-z])"
        r"|@(?!(csv|tsv|json|text|uri|base64d?)\b))).*",
        re.DOTALL,
    ),
}
"""The texts with which a command only reads, by command. A command that is not here may have any
text.
"""
PATTERNS_FIRST = names("""
    cat head tail wc ls stat df du nl tac rev fold expand unexpand cut paste grep egrep fgrep strings md5sum
    sha256sum echo printf basename dirname
    """)
"""Commands whose words may be patterns that start with `*`: an option that a file name becomes does
not matter.
"""
FIND_EXPRESSION = re.compile(
    r"-(name|iname|path|ipath|wholename|regex|iregex|type|size|mtime|mmin|atime|amin|ctime|cmin|maxdepth|mindepth|perm"
    r"|user|group|links|empty|not|o|a|or|and|print|print0|ls|prune|executable|readable|writable|true|false|depth|xdev"
    r"|mount|daystart|quit|newer|inum|regextype|nouser|nogroup|noleaf|printf)|[!(),]"
)
_PS_COLUMN = (  # not `environ`
    "(pid|ppid|pgid|sid|user|uid|ruser|euser|stat|state|s|etimes?|time|lstart|start|tty|tt|nlwp|rss|vsz|sz|ni|pri|psr"
    "|%cpu|%mem|pcpu|pmem|comm|cmd|args|command|ucmd|wchan)(=\\w*)?"
)
LISTS = {
    **dict.fromkeys(
        names("gcc clang make cmake java javac uv mypy git bash deno bun gh tsc"), " --?version"
    ),
    "docker": " (--|compose )version",
    "date": " -I(date|hours|minutes|seconds)",
    "ps": (
        rf"( (aux[wf]*|ax[uwf]*|-[eAfFwa]+|-aux[wf]*|--forest|--no-headers?|--sort=[\w%,+-]+|-[pCu]"
        rf" ?[\w.,-]+"
        rf"|(-[eAafw]*|ax)o ?{_PS_COLUMN}(,{_PS_COLUMN})*))*"
    ),
    "lsof": r"( (-[nPti]+((tcp|udp|TCP|UDP)?(:\d+)?)?|(tcp|TCP)?:\d+|-sTCP:LISTEN|-p ?\d+))+",
    **dict.fromkeys(names("python python3 pip pip3 ruff rg fd"), " (--version|-V)"),
    **dict.fromkeys(names("node npm ruby perl php"), " (--version|-v)"),
    "env": "",
    "command": r" -[vV]( [^-\s]\S*)+",
    "tar": r" -?t[zjJv]*f [^-\s:][^\s:]*",
    "unzip": r" -l [^-\s]\S*",
    "git bisect": " log",
    "git notes": " list",
    "git branch": (
        r"( (-[arv]+|--all|--remotes|--show-current|--sort=\S+))*"
        r"( (--list|--contains|--merged|--no-merged)( [^-\s]\S*)?)?"
    ),
    "git tag": r"( (-n\d*|--sort=\S+))*( (-l|--list|--contains|--points-at)( [^-\s]\S*)?)?",
    "git config": (
        r"( --(global|local|system|show-origin|show-scope|name-only))*"
        r"( (--get|--get-all|--get-regexp|get) [^-\s]\S*| (--list|-l|list)| [\w-]+\.[\w./-]+)"
    ),
    "git remote": r"( (-v|--verbose|get-url [^-\s]\S*))?",
    "git stash": r" (list|show)( (-p|--patch|--stat|-\d+))*( [^-\s]\S*)?",
    "git worktree": r" list( --porcelain)?",
    "git symbolic-ref": r"( --short| -q)* HEAD",
    "git reflog": r"( show( [^-\s]\S*)?)?( -\d+)?",
}
"""The arguments with which commands that may do more only list something or print their version.

Some are not listed because even then they run what the folder names: pytest its conftest.py, yarn,
poetry and rustup (cargo, rustc) a program, `pip list` the .pth files of its environment. `python
version` runs a file of that name. npm writes logs and asks the registry; go fetches the version
that go.mod names. docker sees nothing in the sandbox.
"""


class CommandRow(msgspec.Struct, frozen=True):
    """What the options of a command mean."""

    letters: str
    long: frozenset[str]
    valued: dict[str, str]
    """The options with a value -> their marks: `@` reads the file, `>` writes to it, `!` needs a
    question.
    """
    operands: Operands


@cache
def rows() -> dict[str, CommandRow]:
    """Returns the rows of the table `_COMMANDS`, by the names of their commands."""
    rows_by_command: dict[str, CommandRow] = {}
    # An indented line continues the one before it. The first line explains the columns.
    lines = re.sub(r"\n +", " ", _COMMANDS).strip().splitlines()[1:]
    for line in lines:
        commands, letters, long, valued, operands = (cell.strip() for cell in line.split("|"))
        marks_by_option = dict(re.findall(r"([\w-]+)(\S*)", valued))
        kind = from_plain(operands, Operands)
        row = CommandRow(letters, long=names(long), valued=marks_by_option, operands=kind)
        rows_by_command |= dict.fromkeys(commands.split(), row)
    return rows_by_command


UNKNOWN = CommandRow(letters="", long=frozenset(), valued={}, operands="any")
"""The row of a command that is not in the table."""
