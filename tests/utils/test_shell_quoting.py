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


def test_words_stay_words_and_patterns_patterns(tmp_path):
    (tmp_path / "a.py").touch()
    made = insert_values("printf '%s|' $V", PLACE, lambda _: ["*.py", "a b", "--x=1"])
    done = subprocess.run(["bash", "-c", made], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "a.py|a b|--x=1|"


def test_none_leaves_the_place():
    assert insert_values("f() { echo $V; }", PLACE, lambda _: None) == "f() { echo $V; }"
