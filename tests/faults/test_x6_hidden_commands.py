"""X6: commands that are hidden in a line that looks harmless."""

import subprocess

import pytest
from fakes.tool_benches import decision

from ouro.safety import Deny

ALLOWED = [
    f"shell({program} *)"
    for program in (
        "ls",
        "cat",
        "git",
        "rg",
        "find",
        "sed",
        "awk",
        "tar",
        "echo",
        "sort",
        "xargs",
        "env",
        "less",
    )
] + ["read", "write(src/**)"]
"""Rules that a careless user has added with "always"."""
HIDDEN = [  # bash runs `touch made` in all of them
    "ls; touch made",
    "ls && touch made",
    "ls nothere || touch made",
    "ls | touch made",
    "ls |& touch made",
    "ls\ntouch made",
    "ls & touch made",
    "ls $(touch made)",
    "ls `touch made`",
    'ls "$(touch made)"',
    "ls <(touch made)",
    "ls >(touch made)",
    "cat <<EOF\n$(touch made)\nEOF",
    "cat <<EOF\n`touch made`\nEOF",
    "cat <<< $(touch made)",
    "bash <<'EOF'\ntouch made\nEOF",
    "cat <<'A' | sh\ntouch made\nA",
    "touch${IFS}made",
    "ls;touch${IFS}made",
    "$'touch' made",
    "$'\\x74ouch' made",
    "{touch,made}",
    "t'ou'c\"h\" made",
    "\\touch made",
    "x=touch; $x made",
    "x=touch\n${x} made",
    "ls() { touch made; }; ls",
    "function ls { touch made; }; ls",
    "shopt -s expand_aliases; alias ls='touch made'\nls",
    "env X=1 touch made",
    "env -i -u Y touch made",
    "env -S 'touch made'",
    "command touch made",
    "builtin eval 'touch made'",
    "exec touch made",
    "time touch made",
    "nice -n 5 timeout -k 1 5 touch made",
    "nohup touch made",
    "echo made | xargs touch",
    "echo x | xargs -I{} touch made",
    "echo made | xargs -n1 sh -c 'touch \"$0\"'",
    "find . -maxdepth 0 -exec touch made ;",
    "find . -maxdepth 0 -exec touch made \\;",
    "find . -maxdepth 0 -exec sh -c 'touch made' {} +",
    "find . -maxdepth 0 -execdir touch made \\;",
    "bash -c 'touch made'",
    'bash -lc "touch made"',
    "sh -ec 'ls; touch made'",
    "eval 'touch made'",
    "eval touch made",
    "trap 'touch made' EXIT",
    "if ls; then touch made; fi",
    "for i in 1; do touch made; done",
    "while touch made; do break; done",
    "case x in x) touch made;; esac",
    "[[ -n $(touch made) ]]",
    "x=$(touch made)",
    "export X=$(touch made)",
    "echo ${x:-$(touch made)}",
    "echo $((1 + $(touch made)))",
    "(touch made)",
    "{ touch made; }",
    "! touch made",
    "coproc touch made",
    "ls # harmless\ntouch made",
    "ls \\\n; touch made",
    "cat <<'EOF'\nx\nEOF\ntouch made",
]
REFUSED = [  # bash does not run the command, or runs it later
    "{touch,made}",
    "ls >(touch made)",
    "find . -maxdepth 0 -exec touch made ;",
    "env -i -u Y touch made",
    "builtin eval 'touch made'",
]
DOING_MORE = [  # each does more than it seems to
    "ls > made",
    "ls >> made",
    "ls >& made",
    "ls &> made",
    "ls >| made",
    "ls <> made",
    "> made",
    "cat <<'EOF' > made\nx\nEOF",
    "ls\rtouch made",
    "ls \x0b",
    "ls\u00a0made",
    "LD_PRELOAD=./x.so ls",
    "env LD_PRELOAD=./x.so ls",
    "PATH=.:$PATH; ls",
    "export PATH=.; ls",
    "PAGER='touch made' git log",
    "GIT_EXTERNAL_DIFF=./x git diff",
    "GIT_PAGER=./x git -p log",
    "GIT_SSH_COMMAND=./x git fetch",
    "GIT_CONFIG_COUNT=1 git status",
    "LESSOPEN='|touch made' less x",
    "BASH_ENV=./x ls",
    "find . -name x -delete",
    "find . -fprint made",
    "find . -fprintf made x",
    "find . -fls made",
    "sed -n '1e touch made' x",
    "sed 's/x/touch made/e' x",
    "sed 'w made' x",
    "sed 's/a/b/w made' x",
    "sed -i s/a/b/ x",
    "rg --pre ./x y",
    "rg --pre=./x y",
    "rg --hostname-bin=./x y",
    "git -c core.pager='touch made' log",
    "git -c core.fsmonitor=./x status",
    "git -ccore.fsmonitor=./x status",
    "git --config-env=core.pager=X log",
    "git --exec-path=. status",
    "git --git-dir=x status",
    "git diff --ext-diff",
    "git diff --ext",
    "git log --textconv",
    "git log --output=made",
    "git log --outp=made",
    "git grep -Ox y",
    "git grep --open-files-in-pager=./x y",
    "git cat-file --filters HEAD:x",
    "tar xf x --to-command=./x",
    "tar cf /dev/null x --checkpoint=1 --checkpoint-action=exec=./x",
    "tar -I ./x -xf y",
    "awk 'BEGIN{system(\"touch made\")}'",
    "awk 'BEGIN{print 1 > \"made\"}'",
    "awk 'BEGIN{print 1 | \"sh\"}'",
    "awk 'BEGIN{\"touch made\" | getline}'",
    "awk -f x",
    "sort -o made x",
    "sort -uo made x",
    "sort --outp=made x",
    "sort --compress-program=./x y",
    "/bin/ls",
    "./ls",
    "../ls",
    "src/ls",
    "ls; " * 51,
    "ls " + "x" * 20_000,
    "ls 'unfinished",
    "ls &&",
    "[[ -v 'a[$(touch made)]' ]]",
    "test -v 'a[$(touch made)]'",
    "printf -v 'a[$(touch made)]' x",
    "x='a[$(touch made)]'; echo $((x))",
    "x='$(touch made)'; echo ${x@P}",
    "rg $X",
    "sort *",
    "git diff $(echo --ext-diff)",
    "sed '" + " " * 9_000 + "w made' x",  # with backtracking, for hours
]


@pytest.mark.parametrize("line", HIDDEN)
def test_x6_command_hidden_in_an_allowed_line_asks(tmp_path, line):
    assert type(decision(tmp_path, line, allow=ALLOWED)).__name__ == "Ask"


@pytest.mark.parametrize("line", DOING_MORE)
def test_x6_line_that_does_more_than_its_name_says_asks(tmp_path, line):
    assert type(decision(tmp_path, line, allow=ALLOWED)).__name__ == "Ask"


@pytest.mark.parametrize("line", [*HIDDEN, *DOING_MORE])
def test_x6_plan_mode_denies_hidden_commands(tmp_path, line):
    assert isinstance(decision(tmp_path, line, "plan", allow=ALLOWED), Deny)


@pytest.mark.parametrize("mode", ["ask", "auto"])
@pytest.mark.parametrize("line", [line for line in HIDDEN if "echo made" not in line])
def test_x6_a_deny_rule_finds_the_hidden_command(tmp_path, line, mode):
    assert isinstance(
        decision(tmp_path, line, mode, allow=["shell"], deny=["shell(touch made*)"]), Deny
    )


@pytest.mark.parametrize(
    "line",
    [
        "touch made 'unfinished",
        "ls; touch made &&",
        "touch made; " + "ls; " * 60,
        "ls " + "x" * 20_000 + "; touch made",
        "/usr/bin/touch made",
        "sudo touch made",
        "sudo -u me -- touch made",
        "ssh host 'touch made'",
        "npx touch made",
        "uv run touch made",
        "busybox touch made",
    ],
)
def test_x6_deny_rule_applies_to_a_line_that_cannot_be_judged(tmp_path, line):
    assert isinstance(decision(tmp_path, line, deny=["shell(touch made*)"]), Deny)


@pytest.mark.parametrize("line", [line for line in HIDDEN if "shopt" not in line])
def test_x6_each_hidden_command_really_runs(tmp_path, line):
    """The list is correct: bash runs the hidden command of each line, except those in REFUSED."""
    subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=10,
    )
    assert (tmp_path / "made").exists() or line in REFUSED
