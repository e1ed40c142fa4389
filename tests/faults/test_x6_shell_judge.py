"""X6: a shell line with an effect is asked. Each list is one way to circumvent an earlier version
of the judge.
"""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from fakes.files import git
from fakes.tool_benches import decision
from fuzz_judge import Judge, Lines, fuzz

from ouro.safety import Allow, Ask, Deny, Effect, Permissions, Workspace
from ouro.safety.shell.tables import SCRIPTS

FUZZED = int(os.environ.get("OURO_FUZZ_LINES", "700"))
"""Random lines of which one in ten is allowed, and run. The gate and the nightly run try more."""


@pytest.fixture
def root(tmp_path, home) -> Path:
    folder = tmp_path / "app"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    return folder


GAPS = [
    "ls\n\\touch made",
    "ls\n\\\ntouch made",
    "ls \\\n\ntouch made",
    "ls;\\touch made",
    "ls \n \\tee made",
]
PROGRAMS = [
    "awk -We prog.awk",
    "awk -W exec prog.awk",
    "gawk -i x '{print}'",
    "awk '{print > \"made\"}' a.txt",
    "awk 'BEGIN {getline x < \"/etc/passwd\"; print x}'",
    "sed e",
    "sed '1e touch made' a.txt",
    "sed 's/one/touch made/;e' a.txt",
    "sed 's/a/b/w made/g' a.txt",
    "sed -e 's/one/x/' -e 'w made' a.txt",
    "sed -e 'a\\' -e 'x' -e 'w made' a.txt",
    "sed --expression='s/one/touch made/e' a.txt",
    "sed 'r /etc/passwd' a.txt",
    "sed 'R /etc/passwd' a.txt",
    "sed -n '/one/{w made' -e '}' a.txt",
    "uniq a.txt made",
    "uniq - made",
    "uniq -- a.txt -o",
    "xargs -a a.txt touch",
    "jq -f prog.jq a.txt",
    'jq \'import "x" as x {search: "/etc"}; .\' a.txt',
    "jq '$ENV' a.txt",
    "strings @a.txt",
    "grep -R x .",
    "rg -L x",
    "diff -rN src /etc",
    "sort --files0-from=a.txt",
    "tree -o made",
    "file -C -m a.txt",
    "xxd a.txt made",
    "date -s 2020-01-01",
    "find . -fprint0 made",
    "find -files0-from a.txt",
]
COMPUTED = [
    "printf -v 'a[$(touch made)]' x",
    "printf %n PATH; ls",
    "printf -- '%-5ln' PATH; ls",
    'printf "100% new" IFS',
    "test -v 'a[$(touch made)]'",
    "[ -v 'a[$(touch made)]' ]",
    "test -R x",
    "unset 'A[$(touch made)]'",
    "x=PATH; echo ${!x}",
    "echo ${HOME:0:1}",
    "echo $[1+1]",
    "echo $((x+1))",
    "echo $((1+$(touch made)))",
    "for PATH in ./bin; do ls; done",
    ": ${LD_PRELOAD:=./x.so}",
    "BASH_ENV=./x bash -c true",
    "BASH_ENV=./x cat a.txt",
    "LC_ALL='$(x)' ls",
    "echo `echo \\`touch made\\``",
    "echo $'a\\\\'; touch made #'",
    "cat $X",
    "echo $RANDOM",
    "ls {a..c}",
    "ls & touch made",
    "ls & cat a.txt",
    "ls |& xargs cat",
    "read -r x < a.txt",
    "exit 'a[$(touch made)]'",
]
FOLDERS = [
    "cd -- /etc && cat passwd",
    "cd -P -- .. && ls",
    "cd ..; cat x",
    "git -C .. log",
    "git -C src -C .. -C .. log",
]


@pytest.mark.parametrize("line", GAPS)
def test_x6_nothing_between_two_words_of_a_line_is_skipped(root, line):
    assert isinstance(decision(root, line), Ask)
    assert isinstance(decision(root, line, "plan"), Deny)
    assert isinstance(decision(root, line, "auto", deny=["shell(touch *)", "shell(tee *)"]), Deny)


def test_x6_destructive_lines_are_found_after_newline_and_backslash(root, tmp_path):
    assert isinstance(decision(root, f"ls\n\\rm -rf {Path.home()}/x", "auto"), Ask)
    assert isinstance(decision(root, "ls\n\\tee -a ~/.bashrc", "auto"), Ask)
    assert isinstance(decision(root, "c=; rm -rf $c/*", "auto"), Ask)
    assert isinstance(decision(root, "a=/ b=; rm -rf $a$b*", "auto"), Ask)


@pytest.mark.parametrize("line", PROGRAMS)
def test_x6_unlisted_option_or_operand_asks(root, line):
    assert isinstance(decision(root, line), Ask)
    assert isinstance(decision(root, line, "plan"), Ask | Deny)


@pytest.mark.parametrize("line", COMPUTED)
def test_x6_line_with_bash_expansions_asks(root, line):
    assert isinstance(decision(root, line), Ask)
    assert isinstance(decision(root, line, "plan"), Deny)


@pytest.mark.parametrize("line", FOLDERS)
def test_x6_cd_in_a_line_is_followed_or_asks(root, line):
    assert isinstance(decision(root, line), Ask)


@pytest.mark.parametrize(
    "line", ["cd -- / && rm -rf usr", "cd -- ~/.ssh && cat ./id_rsa", "cd -P -- / && rm -rf usr"]
)
def test_x6_destructive_check_of_auto_follows_cd(root, line):
    assert isinstance(decision(root, line, "auto"), Ask)


def test_x6_link_on_the_way_is_followed_as_cd_does(root):
    (root / "src" / "deep").mkdir()
    (root / "link").symlink_to("src/deep")
    assert isinstance(decision(root, "cd link/../.. && cat x"), Ask)
    assert isinstance(decision(root, "cd link && cd ../.. && cat x"), Ask)
    assert isinstance(decision(root, "cd link && ls"), Allow)


def test_x6_pattern_that_could_expand_to_an_option_asks(root):
    assert isinstance(decision(root, "wc *.txt"), Allow)
    (root / "-R.txt").write_text("")
    assert isinstance(decision(root, "wc *.txt"), Ask)
    assert isinstance(decision(root, "sort *.txt"), Ask)

    line = "grep -rn one --include=*.txt ."
    assert isinstance(decision(root, line), Allow)
    for asked in (
        "grep --file=*.txt a",
        "grep --include=*/*.txt a",
        "grep --include=$X a",
        "grep --inc*=x a",
    ):
        assert isinstance(decision(root, asked), Ask), asked
    (root / "--include=b.txt").write_text("")
    assert isinstance(decision(root, line), Ask)


TEXT = "\"$(cat <<'EOF'\nfix: (x)\n\nIt's done.\nEOF\n)\""
CODE = TEXT.replace("It's", 'Call `made` and "$(made)" \\ for $5, it\'s')
"""A commit message in the form that models use."""


def test_x6_quoted_here_document_is_a_word(root):
    assert isinstance(decision(root, f"echo {TEXT} && ls"), Allow)
    commit = f"git add -A && git commit -m {TEXT}"
    assert decision(root, commit, "auto") == Allow("repository")
    assert isinstance(
        decision(root, commit, allow=["shell(git add *)", "shell(git commit *)"]), Allow
    )
    assert isinstance(decision(root, commit, "auto", deny=["shell(git commit *)"]), Deny)


def test_x6_code_in_a_quoted_here_document_is_text(root, monkeypatch):
    for line in (
        f"git commit -m {CODE}",
        f"git commit -m {CODE} -m 'a'",
        f"git commit -m {TEXT} -m 'a'",
    ):
        assert decision(root, line, "auto") == Allow("repository")
    done = subprocess.run(
        ["bash", "-c", f"printf %s {CODE}"], cwd=root, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (
        'fix: (x)\n\nCall `made` and "$(made)" \\ for $5, it\'s done.',
        "",
    )
    for platform, programs in (("darwin", os.environ["PATH"]), ("linux", "")):
        monkeypatch.setattr("sys.platform", platform)  # its bash 3.2 ends the text at a `)`
        monkeypatch.setenv("PATH", programs)  # without bash another shell runs it
        assert decision(root, f"git commit -m {CODE}", "auto") == Allow("workspace")
        assert decision(root, f"git commit -m {TEXT} -m 'a'", "auto") == Allow("workspace")


@pytest.mark.parametrize(
    "line",
    [
        f"echo {TEXT[1:-1]}",  # bash splits it into words
        f"echo {CODE[1:-1]}",
        TEXT.replace("'EOF'", "EOF"),
        TEXT.replace("EOF\n)", "EOF\ntouch made\nEOF\n)"),
        TEXT.replace("EOF\n)", "EOF\ntouch made)"),
        TEXT.replace("'EOF'", "'EOF' | sh"),
        TEXT.replace("'EOF'", "'EOF' 'EOF'"),
        TEXT.replace("<<'EOF'", "<<-'EOF'"),
        TEXT.replace("cat", "cat x"),
        CODE.replace("'EOF'", "EOF"),
        *(
            TEXT.replace("fix: (x)", text)
            for text in ("x\\", "EO\\\nF", 'EOF)"; touch made; echo "')
        ),
    ],
)
def test_x6_here_document_that_bash_could_execute_asks(root, line):
    assert isinstance(decision(root, line if line.startswith("echo") else f"echo {line}"), Ask)
    assert decision(root, f"git commit -m {line}", "auto") != Allow("repository")


@pytest.mark.parametrize(
    "line",
    [
        "cp -t ~/out a.txt",
        "cp --target-directory=/opt a.txt",
        "curl -o ~/.bashrc x",
        "curl -so /opt/x y",
        "curl --output ~/x y",
        "wget -O ~/x y",
        "tar -xf a.tar -C ~/",
        "tar --directory=/opt -xf a.tar",
        "sort -o ~/x a.txt",
        "dd if=a.txt of=~/x",
        "unzip -d /opt a.zip",
        "git clone x /opt/y",
        "env X=1 cp a.txt /opt",
        "sed -i -e s/a/b/ ~/x",
        "sed -i s/a/b/ /opt/x",
        "for x in 1; do cp a.txt /opt; done",
    ],
)
def test_x6_auto_asks_before_anything_is_written_outside(root, line):
    assert isinstance(decision(root, line, "auto"), Ask)


@pytest.mark.parametrize(
    "line",
    [
        "for x in 1; do touch made; done",
        "if true; then touch made; fi",
        "x=$(touch made)",
        "f() { touch made; }; f",
        "$'touch' made",
        "{touch,made}",
        "bash -c 'bash -c \"touch made\"'",
        "cat <<A\n$(touch made)\nA",
    ],
)
def test_x6_deny_rules_apply_in_auto_to_lines_that_cannot_be_judged(root, line):
    assert isinstance(decision(root, line, "auto", deny=["shell(touch made*)"]), Deny)


@pytest.mark.parametrize(
    "line",
    [
        "for x in 1; do sudo ls; done",
        "if true; then git push --force; fi",
        "x=$(rm -rf ~/y)",
        "(cd / && rm -rf x)",
        "bash -c 'git reset --hard'",
        "time npm publish",
        "cat <<A\n$(sudo ls)\nA",
    ],
)
def test_x6_auto_asks_for_dangerous_lines_that_cannot_be_judged(root, line):
    assert isinstance(decision(root, line, "auto", allow=["shell"]), Ask)


# -- git in a hostile repository


@pytest.mark.parametrize(
    "line",
    [
        "cd src && echo x > made; cd /opt",
        "cd src\nmake > build.log 2>&1\ncd /opt\nls",
        "cd src && rm old; cd /opt",
        "cp a.txt b.txt; cd /opt",
        "(cd src; echo x > made); cd /opt",
    ],
)
def test_x6_a_cd_that_follows_is_not_where_a_file_is_written(root, line):
    assert isinstance(decision(root, line, "auto"), Allow)


@pytest.mark.parametrize(
    "line",
    [
        "cd /opt; echo x > made",
        "cd src; cd /opt; rm old",
        "for name in a b; do echo x > made; cd /opt; done",
        "for name in a b; { echo x > made; cd /opt; }",
        "while true; do echo x > made; cd /opt; done",
        "select name in a; do echo x > made; cd /opt; done",
        "trap 'echo x > made' EXIT; cd /opt",
        "shopt -s expand_aliases\nalias e='echo x > made'\ncd /opt\ne",
        "whi\\\nle true; do echo x > made; cd /opt; done",
        "set -o history; echo x > made; cd /opt; fc -s echo",
        "f() { echo x > made; }; cd /opt; f",
        "cd /opt && (cd app; echo x > made)",
        "echo $(cd /opt; echo x > made)",
        "if cd /opt; then rm old; fi",
    ],
)
def test_x6_a_file_that_may_be_written_after_a_cd_is_judged_there(root, line):
    assert isinstance(decision(root, line, "auto"), Ask)


@pytest.mark.parametrize(
    "line",
    [
        "cd /opt; echo x > /proc/self/cwd/made",
        "cd /opt; echo x > /proc/thread-self/cwd/made",
        "cd /opt; echo x > /proc/self/task/1/cwd/made",
        "cd /opt; echo x > ~/../../../../../../../proc/self/cwd/made",
        "cd /proc/self; echo x > cwd/made",
        "cd /opt; touch //proc/self/../self/cwd/made",
        "touch /dev/fd/7/made",
    ],
)
@pytest.mark.parametrize("confined", [True, False])
def test_x6_a_folder_of_the_process_is_not_the_workspace(root, monkeypatch, line, confined):
    """Links such as /proc/self/cwd lead elsewhere in the shell than in ouro, which judges the line."""
    monkeypatch.chdir(root)
    workspace = Workspace(root, confines=lambda: confined)
    answer = Permissions(workspace, "auto").decide("shell", Effect.RUN, [line])
    assert isinstance(answer, Ask)


@pytest.mark.parametrize(
    "line",
    [
        "ln -s /opt b && cd b && echo x > f",
        "cd src && ln -s / b; echo x > b/f",
        "ln -sfn /opt b > b/f",
        "cp -rs /opt b; echo x > b/f",
    ],
)
def test_x6_a_link_that_the_line_makes_may_lead_elsewhere(root, line):
    rules = {"allow": ["shell(ln *)", "shell(cp *)"]}
    assert isinstance(decision(root, line, "edit", **rules), Ask)
    assert decision(root, line, "auto", **rules) != Allow()
    assert decision(root, "ln -s a.txt b", "edit", **rules) == Allow()


@pytest.fixture
def repository(root) -> Path:
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "first")
    return root


@pytest.mark.parametrize(
    "setting",
    [
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.vcs", "x"),
        ("core.alternateRefsCommand", "./x"),
        ("core.pager", "./x"),
        ("core.worktree", "/"),
        ("core.editor", "./x"),
        ("pager.log", "./x"),
        ("alias.log", "!./x"),
        ("man.x.cmd", "./x"),
        ("help.format", "web"),
        ("browser.x.cmd", "./x"),
        ("format.pretty", "%G?"),
        ("merge.x.driver", "./x"),
        ("diff.x.textconv", "./x"),
        ("filter.x.process", "./x"),
        ("gpg.program", "./x"),
        ("trailer.x.cmd", "./x"),
        ("include.path", "x"),
        ("url.ext::x.insteadOf", "x"),
        ("credential.helper", "!./x"),
        ("protocol.ext.allow", "always"),
        ("uploadpack.packObjectsHook", "./x"),
    ],
)
def test_x6_git_asks_if_a_repository_setting_is_not_known_as_harmless(repository, setting):
    assert isinstance(decision(repository, "git log -3"), Allow)
    git(repository, "config", *setting)
    assert isinstance(decision(repository, "git log -3"), Ask)


@pytest.mark.parametrize(
    "arguments",
    [
        "show --remerge-diff",
        "log --remerge-diff -1",
        "log --help",
        "log --format=%G?",
        "log --show-signature",
        "for-each-ref --format='%(signature)'",
        "stash show --ext-diff",
        "reflog show --output=made",
        "diff --output-indicator-new=x --output=made",
        "diff -O/etc/passwd",
        "diff --no-index a.txt /etc/passwd",
        "cat-file --batch-command --filters",
        "rev-parse --parseopt",
        "grep --open-files-in-pager=./x y",
        "grep -O./x y",
        "branch --edit-description",
        "tag -v x",
        "submodule foreach ./x",
        "worktree add x",
        "help log",
        "bisect run ./x",
        "difftool",
        "fetch",
        "ls-remote ext::./x",
        "archive --remote=ext::./x HEAD",
        "-p log",
        "--paginate log",
        "-c core.pager=./x log",
    ],
)
def test_x6_git_with_an_unlisted_argument_asks(repository, arguments):
    assert isinstance(decision(repository, f"git {arguments}"), Ask)


# -- the judge compared with bash


@pytest.mark.parametrize(
    "line",
    [
        'echo "$\\\n(touch made)"',
        "echo $\\\n(touch made)",
        'cat "a$\\\n{x}"',
        "uniq a*",
        "echo */*",
        "cat */*",
        "od -w ../x",
        "find \\) ..",
        "xxd a.txt --",
        "xxd - -p",
    ],
)
def test_x6_lines_found_by_the_fuzzer_ask(root, line):
    (root / "link").symlink_to("../")
    assert isinstance(decision(root, line), Ask)


def test_x6_fuzzed_lines_that_are_allowed_have_no_effect(tmp_path, home):
    """`OURO_FUZZ_LINES` and `OURO_FUZZ_SEED` choose the lines; others: `python -m
    tests.fuzz_judge`.
    """
    lines = islice(Lines(os.environ.get("OURO_FUZZ_SEED", "ouro")), FUZZED)
    found, ran = fuzz(Judge(tmp_path / "scratch", home), lines)
    assert found == []
    assert ran > FUZZED / 20  # otherwise almost every line was refused


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_x6_a_line_that_is_too_long_is_decided_without_being_judged(tmp_path, monkeypatch, mode):
    """Judging 40 KB of `timeout 5 timeout 5 …` took 13 s, and such a line is asked in any case."""
    monkeypatch.setattr("ouro.safety.shell.judge.floor", None)
    permissions = Permissions(
        Workspace(tmp_path), mode, allow=["shell"], deny=["shell(rm *)", "read(.env)"]
    )
    words = "timeout 5 " * 1100

    decision = permissions.decide("shell", Effect.RUN, [words])
    assert (
        isinstance(decision, Deny)
        if mode == "plan"
        else decision == Ask("it is longer than 10,000 characters")
    )
    for line in (f"{words}; rm a", f"{words}\nrm a", f"cat .env; {words}"):
        denied = permissions.decide("shell", Effect.RUN, [line])
        assert isinstance(denied, Deny), line[:30]
        assert "rule" in denied.reason, line[:30]


@pytest.mark.usefixtures("cpu_limit")
@pytest.mark.parametrize("program", ["{", "{if (a", "{if (a>b) a"])
def test_x6_an_awk_program_is_read_in_linear_time(program):
    """Each brace was compared with the rest: a line of 10 KB stopped the screen for a second."""
    assert SCRIPTS["awk"].fullmatch(program * 100_000)
