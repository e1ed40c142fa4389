"""X6: the star of a rule covers no option with which a command runs another program, or obeys or
writes a file that its other words do not show.
"""

from pathlib import Path

import pytest
from fakes.tool_benches import decision

from ouro.safety import Allow, Ask


@pytest.fixture
def root(tmp_path, home) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    return folder


STARTING = [
    "curl -s -w '%output{made}x' https://a.example",
    "curl -sK settings https://a.example",
    "wget --conf=wgetrc https://a.example",
    "wget -e use_askpass=./x https://a.example",
    "rsync -e ./x a host:b",
    "rsync -avze 'ssh -o ProxyCommand=./x' a host:b",
    "rsync --rsync-path=./x a host:b",
    "ssh -o ProxyCommand=./x host",
    "ssh -oproxycommand=./x host",
    "ssh -F settings host",
    "scp -S ./x a host:b",
    "sftp -D ./x",
    "git bisect run ./x",
    "git rebase main -x ./x",
    "git submodule foreach ./x",
    "git clone -u ./x . y",
    "git clone -c core.sshCommand=./x ssh://h/x",
    "git fetch --upload-pack=./x",
    "git ls-remote ext::./x",
    "gh alias set x '!./x'",
    "man -P ./x ls",
    "zip a.zip a.txt -T -TT ./x",
    "nc -e ./x localhost 1",
    "socat EXEC:./x -",
    "tcpdump -z ./x -w made",
    "psql -c '\\! ./x'",
    "psql -c \"copy t from program './x'\"",
    "mysql -e '\\! ./x'",
    "sqlite3 app.db '.shell ./x'",
    "sqlite3 app.db \"select load_extension('./x')\"",
    "gcc -wrapper ./x a.c",
    "gcc @settings",
    "make SHELL=./x",
    "go build -toolexec ./x",
    "go vet -vettool=./x",
    "cargo --config 'build.rustc-wrapper=\"./x\"' build",
    "npm --script-shell=./x test",
    "pandoc --lua-filter=x.lua a.md",
    "pdflatex -shell-escape a.tex",
    "docker -H tcp://evil.example ps",
    "kubectl --kubeconfig=x get pods",
]


@pytest.mark.parametrize("line", STARTING)
def test_x6_a_star_does_not_cover_an_option_that_runs_a_program(root, line):
    star = f"shell({line.split()[0]} *)"
    answer = decision(root, line, allow=[star])
    assert isinstance(answer, Ask)
    assert answer.rule != star
    # In the mode auto it gets no more than the sandbox gives.
    in_auto = decision(root, line, "auto", allow=[star])
    assert isinstance(in_auto, Ask) or in_auto == Allow("workspace")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("ssh -F settings host uptime", "shell(ssh -F settings host *)"),
        ("git rebase -x ./x main", "shell(git rebase -x ./x *)"),
    ],
)
def test_x6_a_rule_that_names_the_option_covers_it(root, line, rule):
    assert decision(root, line, allow=[rule]) == Allow()


@pytest.mark.parametrize(
    "line",
    [
        "curl -sS -o /dev/null -w '%{http_code}' https://a.example",
        "wget -q -e robots=off https://a.example",
        "wget -q --execute robots=off https://a.example",
        "rsync -avz -e ssh a host:b",
        "rsync -avze 'ssh -p 22' --exclude node_modules a host:b",
        "ssh -o StrictHostKeyChecking=no host uptime",
        "scp -oStrictHostKeyChecking=no a host:b",
        "git clone --depth 1 -b main https://a.example/x",
        "git push -u origin main",
        "git rebase main",
        "git fetch origin",
        "git submodule update --init",
        "gh pr create --fill",
        "man ls",
        "psql -c 'select 1'",
        "sqlite3 app.db 'select a.log from a'",
        "gcc -O2 -o x x.c",
        "make -j4 CC=clang",
        "go test -run TestX ./...",
        "cargo test -- --nocapture",
        "npm run build -- --config x",
        "pandoc --pdf-engine=xelatex a.md -o a.pdf",
        "docker run --rm -p 80:80 x",
        "kubectl get pods -n x",
    ],
)
def test_x6_a_star_covers_common_options(root, line):
    star = f"shell({line.split()[0]} *)"
    assert decision(root, line, allow=[star]) == Allow()
