"""Parsing of shell lines."""

import pytest
from properties import given, settings, st

from ouro.safety import parse_line


def commands(text: str) -> list[str]:
    return [command.text for command in parse_line(text).commands if command.kind == "plain"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ls -la", ["ls -la"]),
        ("a | b && c || d; e & f", ["a", "b", "c", "d", "e", "f"]),
        ("a\nb", ["a", "b"]),
        ("echo $(a) `b` <(c)", ["a", "b", "c", "echo $(a) `b` <(c)"]),
        ('echo "x $(a "$(b)") y"', ["b", "a $(b)", 'echo x $(a "$(b)") y']),
        ("cat <<EOF\n$(a)\nEOF", ["a", "cat"]),
        ("cat <<'EOF'\n$(a)\nEOF", ["cat"]),
        ("cat <<< $(a)", ["a", "cat"]),
        ("(a; b)", ["a", "b"]),
        ("{ a; b; }", ["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for x in 1; do a; done; while b; do c; done", ["a", "b", "c"]),
        ("case x in y) a;; esac", ["a"]),
        ("x=$(a)", ["a"]),
        ("f() { a; }; f", ["f", "a", "f"]),
        ("! a", ["a"]),
        ("env -u A B=1 a b", ["a b"]),
        ("timeout -k 1 5 nice -n 3 nohup a b", ["a b"]),
        (
            "find . -name x -exec a {} \\; -exec b {} +",
            ["find . -name x -exec a {} ; -exec b {} +", "a {}", "b {}"],
        ),
        ("find . | xargs -n 1 -I {} a {}", ["find .", "a {} …"]),
        ("bash -c 'a && b'", ["a", "b"]),
        ("bash -lc 'bash -c \"a\"'", ["a"]),
        ("bash <<'EOF'\na\nEOF", ["a"]),
        ("eval 'a b'", ["eval a b", "a b"]),
        ("trap 'a' EXIT", ["trap a EXIT", "a"]),
        ("l's' \\-l", ["ls -l"]),
        ("$'\\x6c\\163' $'\\u002dl'", ["ls -l"]),
        ("ls \\\n -l # a", ["ls -l"]),
        ("2>&1 a", ["a"]),
    ],
)
def test_each_command_of_a_line_is_found(line, found):
    assert sorted(commands(line)) == sorted(found)
    assert parse_line(line).hidden == "" or "()" in line


def test_loop_over_words_is_expanded_for_each_word():
    assert commands('for x in 1 2; do a "$x"; for y in *.c z; do b $y; done; done | c; d') == [
        *("a 1", "echo *.c", "b *.c", "b z", "a 2", "echo *.c", "b *.c", "b z", "c", "d")
    ]
    assert commands('while read -r x; do a "$x"; done < y') == ["a $x"]


@pytest.mark.parametrize(
    "line",
    ["sudo a b", "npx a b", "uv run a b", "ssh host a b", "ssh host 'a b'", "docker run i a b"],
)
def test_command_passed_to_a_runner_is_guessed(line):
    assert "a b" in [
        command.text for command in parse_line(line).commands if command.kind == "guess"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "$X a",
        "ls${IFS}-l",
        "{ls,-l}",
        "`a` b",
        "eval $X",
        "bash -c $X",
        "a | sh",
        "bash <(a)",
        "source <(a)",
        "a 'b",
        "a &&",
        "ls\rrm",
        "ls\u00a0-l",
        "a\x00b",
        "f() { f | f & }; f",
        "a;" * 51,
        "a " * 6000,
        "$(" * 500,
        'bash -c \'bash -c "bash -c \\"bash -c a\\""\' # ' + "x" * 10_000,
    ],
)
def test_line_with_unknown_commands_is_hidden(line):
    assert parse_line(line).hidden


@pytest.mark.parametrize(
    "line",
    [
        "f() { a; }",
        "alias ls=rm",
        "eval ls",
        ". ./x",
        "LD_PRELOAD=x; ls",
        "cat <<E'O'F\na\nEOF",
        "sort <<EOF -o x\na\nEOF",
        "export PAGER=x",
        "declare -x GIT_PAGER=x",
        "PATH=.:$PATH; ls",
        "http_proxy=x; ls",
        "echo $((x[$(a)]))",
        "echo ${x@P}",
        "(( x ))",
        "[[ $x -eq 1 ]]",
        "[[ -v 'a[$(b)]' ]]",
        "a[$(b)]=1",
        "x=(1 2); echo ${x[y]}",
        "ls | xargs -I {} sh -c 'echo {}'",
    ],
)
def test_unsupported_syntax_is_opaque(line):
    assert parse_line(line).opaque


def test_redirections_are_distinguished():
    line = parse_line("a > b 2>&1 >> c < d &> e >&- >| f")
    assert [(each.target.text, each.writes, each.duplicates) for each in line.redirects] == [
        ("b", True, False),
        ("1", False, True),
        ("c", True, False),
        ("d", False, False),
        ("e", True, False),
        ("-", False, True),
        ("f", True, False),
    ]


def test_variable_set_on_the_line_is_expanded():
    assert commands("x=rm; $x -rf y") == ["rm -rf y"]


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(
            "for x in 1 2 ; do done while read -r if then fi { } ( ) [[ ]] $x a ! time".split()
        )
    )
)
def test_random_keywords_do_not_break_the_parser(words):
    parse_line(" ".join(words))


@settings(max_examples=100)
@given(st.text(alphabet="ab $(){}`'\"\\|&;<>\n*~=#-é\x00[]!", max_size=60))
def test_random_text_does_not_break_the_parser(text):
    parse_line(text)
