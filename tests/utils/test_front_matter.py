import pytest

from ouro.utils.yaml import split_front_matter, words_in


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("---\na: b\n---\nrest", {"a": "b"}),
        ("\ufeff---\r\na: true\r\nb: 5\r\n---\r\nrest", {"a": "true", "b": "5"}),
        ("---\n---\nrest", {}),
        (
            "---\ntools:\n  - Read\n  - Grep\nempty:\n---\nrest",
            {"tools": ["Read", "Grep"], "empty": ""},
        ),
        # Valid for Claude Code, invalid as YAML.
        ("---\nargument-hint: [a] [b]\n---\nrest", {"argument-hint": "[a] [b]"}),
        (
            '---\ndescription: Use when: "x"\n  and y\n---\nrest',
            {"description": 'Use when: "x" and y'},
        ),
        ("---\nglobs: *.py, *.md\n---\nrest", {"globs": "*.py, *.md"}),
        ("---\ndescription: <b>&x\n---\nrest", {"description": "<b>&x"}),
    ],
)
def test_front_matter_is_split_from_the_text(text, values):
    assert split_front_matter(text) == (values, "rest")


@pytest.mark.parametrize("text", ["", "no", "---\nnever closed: x\n", "text\n---\na: b\n---\n"])
def test_a_text_without_front_matter_stays_whole(text):
    assert split_front_matter(text) == ({}, text)


@pytest.mark.usefixtures("cpu_limit")
def test_many_commas_are_split_in_linear_time():
    assert words_in("," * 200_000) == []


def test_words_are_parsed_from_a_string_or_a_list():
    assert words_in("Read, Bash(git diff:*, --stat)") == ["Read", "Bash(git diff:*, --stat)"]
    assert words_in(["Read", " Grep "]) == ["Read", "Grep"]
    assert words_in({"a": "b"}) == []
