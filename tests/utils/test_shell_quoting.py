"""Values in shell lines, as bash reads them."""

import re
import subprocess

import pytest

from ouro.utils.shell_quoting import insert_values

PLACE = re.compile(r"\$V\b")
ODD = [
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "a; touch pwned",
    "a\\",
    "$HOME",
    "é ü",
    "a\nb",
    "#x",
]


@pytest.mark.parametrize(
    "line",
    [
        "printf '%s|' $V",
        'printf "%s|" "$V"',
        "printf '%s|' '$V'",
        'printf "%s|" "$(printf %s "$V")"',
        'printf "%s|" "`printf %s "$V"`"',
        "x=`printf %s '$V'`; printf '%s|' \"$x\"",
        "x=`printf %s $V`; printf '%s|' \"$x\"",
        "printf '%s|' $(echo x >/dev/null; (true); printf '%s' \"$V\") # $V's",
        'printf "%s|" \\"$V\\"',
    ],
)
def test_a_value_is_data_in_every_place(line, tmp_path):
    for value in ODD:
        made = insert_values(line.replace(" # $V's", ""), PLACE, lambda _, value=value: [value])
        done = subprocess.run(["bash", "-c", made], capture_output=True, text=True, cwd=tmp_path)
        wanted = f'"{value}"' if r"\"" in line else value
        if "$(echo" in line:  # not in quotes: the shell splits it
            assert done.stdout.split("|")[:-1] == value.split(), (made, done.stderr)
        else:
            assert done.stdout == f"{wanted}|", (made, done.stderr)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "cat <<EOF; printf '%s' \"$V\"\nit's $V\nEOF\n",
        "cat <<'EOF'\nit's $V\nEOF\nprintf '%s' \"$V\"",
        "cat <<-\\EOF\n\tit's $V\n\tEOF\nprintf '%s' '$V'",
    ],
)
def test_a_value_in_a_here_document_is_its_text(line, tmp_path):
    for value in (*ODD, "EOF\ntouch pwned"):
        made = insert_values(line, PLACE, lambda _, value=value: [value])
        done = subprocess.run(["bash", "-c", made], capture_output=True, text=True, cwd=tmp_path)
        one_line = value.replace("\n", " ")
        first, second = f"it's {one_line}\n", value
        assert done.stdout in (first + second, second + first), (made, done.stderr)
        assert list(tmp_path.iterdir()) == []


def test_what_looks_like_a_here_document_is_none(tmp_path):
    for line in (
        "x=$((1<<n))\necho $V",
        "cat <<<EOF >/dev/null\necho $V\n",
        "echo '<<EOF'\necho $V",
    ):
        made = insert_values(line, PLACE, lambda _: ["a; touch pwned"])
        subprocess.run(["bash", "-c", made], capture_output=True, cwd=tmp_path)
        assert list(tmp_path.iterdir()) == [], made


def test_words_stay_words_and_patterns_patterns(tmp_path):
    (tmp_path / "a.py").touch()
    made = insert_values("printf '%s|' $V", PLACE, lambda _: ["*.py", "a b", "--x=1"])
    done = subprocess.run(["bash", "-c", made], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "a.py|a b|--x=1|"


def test_none_leaves_the_place():
    assert insert_values("f() { echo $V; }", PLACE, lambda _: None) == "f() { echo $V; }"
