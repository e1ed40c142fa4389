"""X6: loops, conditions, here-documents and commands on found files are allowed if every part is
harmless.
"""

from pathlib import Path

import pytest
from fakes.files import git
from fakes.tool_benches import decision

from ouro.safety import Allow, Ask, Deny

HARMLESS = [
    "cat <<'EOF'\nIt's $(touch made)\nEOF",
    "grep one <<< 'one two'",
    "cat <<'EOF' | wc -l\nx\nEOF",
    'for f in a.txt src/x.py; do wc -l "$f"; done',
    'for f in a.txt src/x.py\ndo\n  echo "== ${f}"\n  head -3 $f\ndone | head -50',
    'for f in *.txt; do [ -f "$f" ] && tail -1 "$f" || echo "no $f"; done',
    'for d in src; do for f in x.py y.py; do cat "$d/$f"; done; done',
    'for f in a.txt; do if [[ -f "$f" ]]; then cat "$f"; else continue; fi; done',
    'while read -r l; do echo "- $l"; printf "%s: 100%%\\n" "$l"; done < a.txt',
    'git ls-files | while IFS= read -r f; do wc -l "$f"; done',
    "if [ -f a.txt ]; then cat a.txt; elif ! grep -q one a.txt; then ls; fi",
    "(cd src && ls); { ls; pwd; }",
    "time ls",
    "find . -name '*.py' -exec grep -n foo {} +",
    "find src -type f -exec head -2 {} \\;",
    "find . -name '*.py' | head -5 | xargs wc -l",
    "find . -print0 | xargs -0 grep -l import",
    "rg -l import | sort | xargs -n1 head -3",
    "grep -rl import src | xargs -I{} wc -l {}",
    "git ls-files '*.py' | xargs wc -l | tail -1",
    "seq 1 4 | xargs -n 2 echo",
    "rg --files | rg -v '\\.txt$' | xargs wc -l",
    'echo "lines: $(wc -l < a.txt), on $(git branch --show-current)"',
    'echo "$PATH" $HOME',
    "ls --help",
    "tar tzf a.tgz",
    "unzip -l a.zip",
    "git symbolic-ref --short HEAD",
    "base64 a.txt",
]
HOSTILE = {
    "a here-document": [
        "cat <<EOF\n$(touch made)\nEOF",
        "cat <<EOF\n$HOME\nEOF",
        "bash <<'EOF'\ntouch made\nEOF",
        "cat <<'EOF' | sh\ntouch made\nEOF",
        "cat <<'EOF' > made\nx\nEOF",
        "cat <<'EOF'\nx\nEOF\ntouch made",
        "cat <<'EOF' \"a\nEOF\n\"\ntouch made",
        "cat <<'EOF' \"a\nb\nEOF\n\"",
        "cat <<'EOF' \\\nx\nEOF\ntouch made",
        "cat <<-'EOF'\n\ttouch made\n\tEOF\ntouch made",
        "cat <<'EOF'\nno end",
        "cat <<'E'OF\nx\nE\ntouch made",
        "xargs cat <<'EOF'\n../outside/key.txt\nEOF",
        "git commit -F - <<'EOF'\nx\nEOF",
        "for f in a.txt ../key; do cat <<'EOF'; cat \"$f\"\nx\nEOF\ndone",
        "cat <<'A'; for f in a.txt ../key; do cat \"$f\"\ntext\nA\ndone",
    ],
    "a loop over words": [
        'for f in a b; do rm "$f"; done',
        "for f in -o; do sort $f made a.txt; done",
        "for f in touch; do $f made; done",
        'for f in a.txt; do eval "cat $f"; done',
        'for f in a.txt; do bash -c "cat $f"; done',
        "for PATH in ./bin; do ls; done",
        "for IFS in /; do ls; done",
        "for BASH_ENV in x; do ls; done",
        'for f in a.txt; do cat "$f"; done > made',
        "for f in a.txt; do cat; done < ../key",
        'for f in a.txt; do echo "$f"; done | sh',
        "for f in a.txt ../key; do cat $f; done",
        "for f in a.txt ../key; do cat $f; done; ls",
        "(for f in a.txt ../key; do cat $f; done)",
        'for f in ~/.ssh/id_rsa; do cat "$f"; done',
        'for f in "a.txt ../key"; do cat $f; done',
        'for f in ""; do jq $f \'import "x" as x; .\' data.json; done',
        'for f in ..; do cat "$f/key"; done',
        "for f in *; do sort $f; done",
        "for f in '*'; do sort $f; done",
        "for f in '.?/key'; do cat $f; done",
        'for f in link*; do cat "$f"; done',
        "for f in $(cat a.txt); do cat $f; done",
        'for f in a; do for f in ../key; do ls; done; cat "$f"; done',
        'for f in ../key a.txt; do break; done; cat "$f"',
        'for f in a.txt; do cat "$f"; f=../key; done',
        'for f in a.txt; do read f; cat "$f"; done < a.txt',
        "for f in 1; do ls() { touch made; }; ls; done",
        "for f in 1; do alias ls=touch; done",
        "for f; do ls; done",
        "for ((i=0;i<3;i++)); do ls; done",
        "select f in a b; do ls; done",
    ],
    "a loop over lines": [
        'while read -r l; do cat "$l"; done < a.txt',
        "while read -r l; do $l; done < a.txt",
        "while read -r l; do echo $l; done < a.txt",
        "while read PATH; do ls; done < a.txt",
        "while IFS= read -r IFS; do ls; done < a.txt",
        'while read -r l; do echo x > "$l"; done < a.txt',
        "while read -r l; do echo x; done < ../key",
        'while read -r l; do git log "$l"; done < a.txt',
        'while read -r l; do [ "$l" ] && test "$l" x; done < a.txt',
        "while read -r l; do [ $l = x ]; done < a.txt",
        'while read -r l; do printf "$l" x; done < a.txt',
        'while read -r l; do sed -n "$l" a.txt; done < a.txt',
        'echo ../key | while read -r l; do cat "$l"; done',
        'find . -printf ../key | while read -r l; do cat "$l"; done',
        "while touch made; do break; done",
        "while [ -d src ]; do cd src; cat key; done",
        "while read -r l; do cd src; cat key; done < a.txt",
    ],
    "a condition or a group": [
        "if touch made; then ls; fi",
        "if true; then ls; else touch made; fi",
        "if ls; then ls; fi > made",
        "! touch made",
        "[[ -v 'a[$(touch made)]' ]]",
        "[[ x -eq 'a[$(touch made)]' ]]",
        "[[ a > made ]]",
        '[[ -n "$(touch made)" ]]',
        "((x=1))",
        "(touch made)",
        "{ ls; } > made",
        "case x in x) ls;; esac",
    ],
    "a command that find runs": [
        "find . -exec sh -c ls \\;",
        "find . -exec rm {} +",
        "find . -exec cat {} \\; -delete",
        "find . -exec cat {}/../../key \\;",
        "find . -exec sort + -o made \\;",
        "find . -exec sort {} -o made \\;",
        "find . -exec {} \\;",
        "find . -execdir cat {} \\;",
        "find . -ok cat {} \\;",
        "find .. -exec cat {} \\;",
        "find . -exec sed -n {} a.txt \\;",
        "find . -exec awk {} a.txt \\;",
        "find . -exec uniq {} +",
        "find . -exec find {} -delete \\;",
        "find . -exec git -C {} log \\;",
        "find . -exec env touch {} \\;",
        "find -L . -exec cat {} \\;",
        "find $X -exec cat {} \\;",
        "find . -exec cat {} \\; > made",
    ],
    "a command that xargs runs": [
        "find . | xargs rm",
        "find . | xargs sh -c 'cat \"$@\"'",
        "find . | xargs uniq",
        "find . | xargs cat < a.txt",
        "find . | sort < a.txt | xargs cat",
        "cat a.txt | xargs cat",
        "echo ../key | xargs cat",
        "(echo ../key; find .) | xargs cat",
        "{ echo ../key; find .; } | xargs cat",
        "if true; then find .; fi | xargs cat",
        "find . -printf ../key | xargs cat",
        "find . -ls | xargs cat",
        "rg -tlua one | xargs cat",
        "rg one | xargs cat",
        "find . | grep -o x | xargs cat",
        "find . | head -c 3 | xargs cat",
        "find src | head -v | xargs cat",
        "find src | tail -v -n 3 | xargs cat",
        "find src | grep -n x | xargs cat",
        "find src | grep -H x | xargs cat",
        "find src | grep --null x | xargs cat",
        "find src | rg --passthru -r ../key x | xargs cat",
        "rg --files | rg x src | xargs cat",
        "find . | sed s/a/b/ | xargs cat",
        "find . | xargs -a a.txt cat",
        "find . | xargs -I% cat %",
        "find src -type f | xargs -d 5 cat",
        "ls src | xargs -I 5 sed -n 5p a.txt",
        "find . | xargs -I{} cat {}/../../key",
        "find .. | xargs cat",
        "git log --name-only | xargs cat",
        "git diff --name-only HEAD | xargs cat",
    ],
    "the output of a command": [
        'echo "$(touch made)"',
        'cat "$(cat a.txt)"',
        'sort "$(echo -o)" made a.txt',
        '"$(echo touch)" made',
        'ls > "$(echo made)"',
        'LC_ALL="$(touch made)" ls',
        'git log "$(echo --output=made)"',
        'printf "$(echo -v)" x',
        "[ \"$(echo -v)\" 'a[0]' ]",
        "echo $(cat a.txt)",
    ],
}


@pytest.fixture
def repository(tmp_path, home) -> Path:
    root = tmp_path / "app"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "src" / "x.py").write_text("import os\n")
    (tmp_path / "key").write_text("secret\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    return root


def test_x6_line_of_harmless_commands_is_allowed_also_in_plan_mode(repository):
    for line in HARMLESS:
        assert isinstance(decision(repository, line), Allow), line
        assert isinstance(decision(repository, line, "plan"), Allow), line


@pytest.mark.parametrize("form", HOSTILE)
def test_x6_form_that_hides_something_asks(repository, form):
    """In one repository: making it takes most of the time of a line."""
    link, found = repository / "linked", []
    for line in HOSTILE[form]:
        link.symlink_to("../key")
        with_link = decision(repository, line), decision(repository, line, "plan")
        link.unlink()
        is_asked = isinstance(with_link[0], Ask) and isinstance(with_link[1], Ask | Deny)
        if not is_asked:
            found.append(f"with the link: {line}")
        if not isinstance(decision(repository, line), Ask) and "link*" not in line:
            found.append(line)
    assert found == []


def test_x6_found_files_are_judged_by_the_links_among_them(repository):
    for_find, for_xargs = "find . -exec cat {} +", "git ls-files | xargs wc -l"
    assert isinstance(decision(repository, for_xargs), Allow)
    odd = repository / "src" / "a -o"
    odd.write_text("")
    assert isinstance(decision(repository, for_find), Allow)
    assert isinstance(decision(repository, for_xargs), Ask)
    odd.rename(repository / "-R.txt")
    assert isinstance(decision(repository, for_xargs), Ask)
    (repository / "-R.txt").unlink()
    assert isinstance(decision(repository, for_xargs), Allow)
    git(
        repository,
        "update-index",
        "--add",
        "--cacheinfo",
        "100644",
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
        "a -o",
    )
    assert isinstance(decision(repository, for_xargs), Ask)  # only in the index
    assert isinstance(
        decision(repository, 'git ls-files | while read -r f; do sort "$f"; done'), Ask
    )
    assert isinstance(decision(repository, "diff -r src ."), Allow)
    (repository / "out").symlink_to("..")
    assert isinstance(decision(repository, for_find), Ask)
    assert isinstance(decision(repository, "diff -r src ."), Ask)


def test_x6_find_on_regular_files_does_not_check_links(repository):
    (repository / "src" / "out").symlink_to("../../key")
    for expression in ("-type f", "-name x -type f", "-type f -name x -size +1"):
        assert isinstance(decision(repository, f"find src {expression} -exec cat {{}} +"), Allow)
    for expression in (
        "-type l", "-type f -o -type l", "-name -type", "! -type f", "\\( -name x -o -type f \\)", "-type f,l",
        "-name '* -type f *'", "-name f", "-not -type f", "-type d , -type f",
    ):  # fmt: skip
        assert isinstance(decision(repository, f"find src {expression} -exec cat {{}} +"), Ask), (
            expression
        )
    for last in ("-type f", "-o -exec cat {} +", ", -exec cat {} +"):
        assert isinstance(decision(repository, f"find src -exec cat {{}} + {last}"), Ask)
        assert (
            isinstance(decision(repository, f"find src -type f -exec cat {{}} + {last}"), Ask)
            or last == "-type f"
        )
    assert isinstance(decision(repository, "find src -type f | xargs cat"), Ask)


def test_x6_program_in_the_workspace_asks_whatever_its_name(repository, monkeypatch):
    for folder in (".", "bin", str(repository / "bin")):
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        assert isinstance(decision(repository, "ls; cat a.txt"), Allow)
        name = repository / "bin" / "ls" if folder != "." else repository / "ls"
        name.parent.mkdir(exist_ok=True)
        name.write_text("#!/bin/sh\ntouch made\n")
        assert isinstance(decision(repository, "ls; cat a.txt"), Ask)
        assert isinstance(decision(repository, "cd src; cat a.txt | ls"), Ask)
        for other, line in (
            ("timeout", "timeout 5 cat a.txt"),
            ("xargs", "ls | xargs -n1 head"),
            ("gzip", "zcat a.gz"),
        ):
            name = name.rename(name.with_name(other))
            assert isinstance(decision(repository, line), Ask)
        name.unlink()


def test_x6_process_listing_runs_unconfined_only_on_its_own(repository):
    for line in (
        "ps aux | grep node | head -3",
        "pgrep -fl python",
        "lsof -nP -iTCP:3000 -sTCP:LISTEN",
        "ss -tlnp",
    ):
        assert decision(repository, line) == Allow("off")
        assert decision(repository, line, "auto") == Allow("off")
    assert isinstance(decision(repository, "ps aux; cat a.txt"), Ask)
    assert isinstance(decision(repository, "ps aux; grep -r x"), Ask)
    assert isinstance(decision(repository, "ps aux > src/processes", "edit"), Ask)
    assert decision(repository, "ps aux; cat a.txt", "auto") == Allow("workspace")


def test_x6_unquoted_variable_that_bash_splits_asks(repository):
    line, quoted = "for f in *.txt; do wc -l $f; done", 'for f in *.txt; do wc -l "$f"; done'
    (repository / "a b.txt").write_text("")
    assert isinstance(decision(repository, line), Ask)
    assert isinstance(decision(repository, 'for f in *.txt; do wc -l "./"$f; done'), Ask)
    assert isinstance(decision(repository, quoted), Allow)


def test_x6_deeply_nested_loops_end_and_ask(repository):
    words = " ".join("abcdefgh")
    line = "".join(f"for {name} in {words}; do " for name in "abcdefgh") + "ls; " + "done; " * 8
    assert isinstance(decision(repository, line), Ask)
    assert isinstance(decision(repository, line.replace("ls; ", "")), Ask | Allow)
    assert isinstance(decision(repository, line, "auto"), Allow)


def test_x6_rules_apply_to_each_word_of_a_loop(repository):
    line = 'for c in status push; do git "$c"; done'
    assert isinstance(decision(repository, line, "auto", deny=["shell(git push *)"]), Deny)
    assert isinstance(
        decision(repository, 'for f in a .env; do cat "$f"; done', deny=["read(.env)"]), Deny
    )
    assert isinstance(
        decision(repository, 'for t in a b; do make "$t"; done', allow=["shell(make *)"]), Allow
    )
    unknown = 'while read -r t; do make "$t"; done < a.txt'
    assert isinstance(decision(repository, unknown, allow=["shell(make *)"]), Ask)
    commit = "git commit -F - <<'EOF'\nIt's done: $(x)\nEOF"
    assert isinstance(decision(repository, commit, allow=["shell(git commit *)"]), Allow)
    assert decision(repository, commit, "auto") == Allow("repository")
    assert decision(repository, commit).rule == "shell(git commit *)"
    assert (
        decision(repository, "ssh host <<'EOF'\nuptime\nEOF").rule == ""
    )  # the rule would allow any other text
    assert isinstance(decision(repository, "cat > src/n.py <<'EOF'\nx\nEOF", "edit"), Allow)
