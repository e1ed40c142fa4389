"""Options with which a common command runs another program, or obeys or writes a file that its other
words do not show. The `*` of a rule does not cover them.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ouro.safety.shell.command import Command

_SSH_SETTING = (
    r"-[a-zA-Z0-9]*o\0?[^\0]*"
    r"(?i:(proxy|local|remote|knownhosts)command|include|pkcs11|securitykeyprovider)[^\0]*"
)
_GIT = (
    r"rebase\0([^\0]+\0)*(-x[^\0]*|--exec[^\0]*)|bisect\0run|submodule\0([^\0]+\0)*foreach"
    r"|(clone|fetch|pull|ls-remote|push|archive|remote|fetch-pack|send-pack|submodule)\0([^\0]+\0)*(--upload-p[^\0]*"
    r"|--receive-p[^\0]*|--exec[^\0]*|ext::[^\0]*)"
    r"|clone\0([^\0]+\0)*(-[a-zA-Z]*[uc][^\0]*|--config[^\0]*|--template[^\0]*)|init\0([^\0]+\0)*--template[^\0]*"
    r"|difftool\0([^\0]+\0)*(-x[^\0]*|--ext[^\0]*)|filter-branch"
)
_DATABASE = (
    r"[^\0]*(\\[!ogw]|\\copy[^\0]*program|(?i:copy[^\0]*program|into\s+(out|dump)file))[^\0]*"
)
_STARTERS = {
    "curl": r"-[a-zA-Z#]*K[^\0]*|--conf[^\0]*|[^\0]*%output\{[^\0]*",
    "wget": r"--conf[^\0]*|--use-ask[^\0]*|(-e|--exec[a-z]*+)(?![\0=]?robots=)[\0=]?[^\0]*",
    "rsync": r"(-[a-zA-Z]*e|--rsh)(?![\0=]?ssh( -p ?\d+)?\0)[\0=]?[^\0]*|--rsync-path[^\0]*|--config[^\0]*",
    "ssh": rf"-(?![oil])[a-zA-Z0-9]*F[^\0]*|{_SSH_SETTING}",
    **dict.fromkeys(("scp", "sftp"), rf"-(?![oicPl])[a-zA-Z0-9]*[FSD][^\0]*|{_SSH_SETTING}"),
    "git": _GIT,
    "gh": r"(alias|extension|config)\0(set|import|install|exec|create)",
    "man": r"-[a-zA-Z]*[PHC][^\0]*|--pag[^\0]*|--html[^\0]*|--config[^\0]*",
    "zip": r"-[a-zA-Z]*TT[^\0]*|--unzip-c[^\0]*",
    **dict.fromkeys(
        ("nc", "ncat", "netcat"), r"-[a-zA-Z]*[ec]|--(sh-)?exec[^\0]*|--lua-exec[^\0]*"
    ),
    "socat": r"[^\0]*(?i:exec|system|shell):[^\0]*",
    "tcpdump": r"-[a-zA-Z]*z",
    "nmap": r"--script[^\0]*|--datadir[^\0]*",
    "psql": _DATABASE,
    **dict.fromkeys(("mysql", "mariadb"), rf"{_DATABASE}|\s*system\s[^\0]*|--init-command[^\0]*"),
    **dict.fromkeys(
        ("sqlite3", "duckdb"),
        r"([^\0]*\n)?\s*\.(shell|system|load|output|once|import|save|backup|log|read|archive|clone)\b[^\0]*"
        r"|[^\0]*(load_extension|writefile)[^\0]*",
    ),
    **dict.fromkeys(
        ("gcc", "g++", "cc", "c++", "clang", "clang++", "ld"),
        r"-wrapper|-f?plugin[^\0]*|-B[^\0]*|--?specs[^\0]*|-fuse-ld=/[^\0]*|@[^\0]+|-Wl,[^\0]*plugin[^\0]*",
    ),
    **dict.fromkeys(("make", "gmake"), r"(SHELL|\.SHELLFLAGS|MAKEFLAGS)[:+?]?=[^\0]*|--eval[^\0]*"),
    "go": r"--?(toolexec|vettool|exec|overlay|modfile)(=[^\0]*)?",
    "cargo": r"--config[^\0]*",
    **dict.fromkeys(
        ("npm", "pnpm", "yarn"), r"--(script-shell|node-options|globalconfig|userconfig)[^\0]*"
    ),
    "pandoc": r"-F[^\0]*|--filter[^\0]*|-L[^\0]*|--lua-f[^\0]*|--pdf-engine(?![\0=]\w+\0)[\0=]?[^\0]*",
    **dict.fromkeys(
        ("tex", "latex", "pdftex", "pdflatex", "xelatex", "lualatex"),
        r"--?(enable-write18|shell-e[^\0]*)",
    ),
    "openssl": r"-engine|-provider-path|-config",
    "kubectl": r"--kubeconfig[^\0]*",
    **dict.fromkeys(("docker", "podman"), r"-H[^\0]*|--host[^\0]*|--config[^\0]*|--url[^\0]*"),
}
"""Programs, each with a pattern of such words, which have a zero character between them."""


def find_program_option(command: Command, named: Collection[str] = ()) -> str:
    """Returns the first words of a command with which it runs another program, or obeys or writes a
    file that its other words do not show; empty if there are none. Words that a rule of the user
    names (`named`) do not count.
    """
    pattern = _STARTERS.get(command.program)
    if pattern is None:
        return ""
    words = "".join(f"\0{word.text}" for word in command.arguments)
    for match in re.finditer(rf"\0({pattern})(?=\0)", f"{words}\0", re.DOTALL):
        found = match[1].split("\0")
        if not set(found).issubset(named):
            return " ".join(found)
    return ""
