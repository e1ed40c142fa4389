"""Markdown rendered as lines."""

import pytest

from ouro.frontends.tui.blocks import markdown
from ouro.frontends.tui.blocks.markdown import markdown_lines
from ouro.frontends.tui.blocks.palette import Palette

PALETTE = Palette({})


def texts(source, width=40):
    return [line.text.rstrip() for line in markdown_lines(source, width, PALETTE)]


def links(source):
    return [
        s.style.link
        for line in markdown_lines(source, 80, PALETTE)
        for s in line.segments
        if s.style and s.style.link
    ]


def test_lists_are_nested_and_numbered():
    assert texts("- a\n  - b\n    more\n- c\n\n3. x\n3. y") == [
        "• a",
        "  • b more",
        "• c",
        "",
        "3. x",
        "4. y",
    ]


def test_tasks_are_check_boxes():
    source = (
        "- [x] done\n- [ ] **open**\n  1. [X] inside\n- [y] no box\n- [ ]\n- [x](https://a.b)\n"
    )
    shown = ["☑ done", "☐ open", "  1. ☑ inside", "• [y] no box", "• [ ]", "• x (https://a.b)"]
    assert texts(source) == shown


def test_a_loose_list_keeps_its_blank_lines():
    assert texts("- a\n\n  more\n\n- b") == ["• a", "", "  more", "", "• b"]


def test_a_table_is_fitted_and_aligned():
    source = "| n | value |\n|---|---:|\n| a | 1 |\n| 日本 | 22 |"
    assert texts(source) == ["n    │ value", "─────┼──────", "a    │     1", "日本 │    22"]


def test_a_wide_table_wraps_its_widest_column():
    source = "| n | text |\n|---|---|\n| a | " + "word " * 12 + "|"
    assert max(len(line) for line in texts(source, 30)) <= 30
    assert texts(source, 30)[2:4] == [
        "a │ word word word word word",
        "  │ word word word word word",
    ]


def test_table_in_a_narrow_width_becomes_a_list():
    assert texts("| name | value | what |\n|---|---|---|\n| a | 1 | x |", 12) == [
        "name: a",
        "value: 1",
        "what: x",
    ]


def test_code_keeps_its_spaces_and_is_folded_not_wrapped():
    assert texts("```\na  b\n    c\n```") == [" a  b", "     c"]


def test_link_target_is_shown_once():
    assert texts("[text](https://e.com/x) and <https://e.com>", 80) == [
        "text (https://e.com/x) and https://e.com"
    ]
    assert links("[text](https://e.com/x) and <https://e.com>") == [
        "https://e.com/x",
        "https://e.com",
    ]


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "vscode://x",
        "ssh://h",
        "FILE:///x",
        "api.py",
        "data:text/html,x",
        "javascript:x",
    ],
)
def test_links_with_unsafe_schemes_are_not_clickable(target):
    assert links(f"[click]({target}) ![pic]({target}) <{target}>") == []
    assert target.lower() in " ".join(texts(f"[click]({target})", 80)).lower()


def test_images_are_shown_as_name_and_target():
    assert texts("![a cat](https://e.com/cat.png)", 80) == [
        "[image: a cat] (https://e.com/cat.png)"
    ]


def test_html_and_console_markup_are_shown_as_text():
    assert texts("<b>x</b> [red]y[/red] [@click=app.quit]z[/]", 80) == [
        "<b>x</b> [red]y[/red] [@click=app.quit]z[/]"
    ]


def test_entities_cannot_insert_control_characters():
    assert texts("a&#8238;b&#27;[31mc&#x9b;d `e&#8238;f`", 80)[0].isprintable()


@pytest.mark.parametrize("width", [1, 2, 3, 5, 40, 500])
def test_every_block_is_drawn_at_every_width(width):
    source = "# T\n\npara 日本\n\n> q\n> - l\n\n- a\n  1. b\n     ```py\n     x\n     ```\n\n"
    source += "| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n    code"
    assert markdown_lines(source, width, PALETTE)


def test_deep_nesting_is_drawn():
    assert markdown_lines("> " * 200 + "x", 40, PALETTE) is not None
    assert markdown_lines("- " * 200 + "x", 40, PALETTE) is not None
    assert markdown_lines("[" * 5000, 40, PALETTE) is not None


def test_every_line_of_a_diff_fence_is_coloured():
    palette = Palette({"success": "#00ff00", "error": "#ff0000"})
    lines = markdown_lines("```diff\n same\n+added\n same\n-gone\n+last\n```", 40, palette)
    colours = {
        line.text.strip(): {s.style.color.name for s in line.segments if s.text.strip()}
        for line in lines
    }
    assert [colours[line] for line in ("+added", "+last", "-gone")] == [
        {"#00ff00"},
        {"#00ff00"},
        {"#ff0000"},
    ]


@pytest.fixture
def terminal(monkeypatch):
    """Sets the variables by which a terminal is known."""

    def known_by(**variables):
        for name in ("TMUX", "STY", "VTE_VERSION", "TERM_PROGRAM", *markdown._LINKING_VARIABLES):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        markdown.terminal_shows_links.cache_clear()

    yield known_by
    markdown.terminal_shows_links.cache_clear()


@pytest.mark.parametrize(
    ("variables", "is_shown"),
    [
        ({}, True),
        ({"KITTY_WINDOW_ID": "1"}, False),
        ({"VTE_VERSION": "7600"}, False),
        ({"VTE_VERSION": "4600"}, True),
        ({"VTE_VERSION": "new"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, True),
        ({"KITTY_WINDOW_ID": "1", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
    ],
)
def test_an_address_is_behind_its_link_only_where_no_click_opens_it(terminal, variables, is_shown):
    terminal(**variables)
    address = " (https://e.com/x)" if is_shown else ""
    assert texts("[text](https://e.com/x)", 80) == [f"text{address}"]
    assert texts("[https://bank.com](https://e.com/x)", 80) == [
        "https://bank.com (https://e.com/x)"
    ]


@pytest.mark.parametrize(
    "formula",
    [
        r"$\forall\, \varepsilon > 0$",
        "$a_1 * b_2 * c_3$",
        r"$$f(n) = 2n\;\!.$$",
        r"\(x_1\, y_1\)",
        r"\[\int_0^1 x\, dx\]",
    ],
)
def test_a_formula_keeps_its_signs(formula):
    assert texts(f"It holds: {formula} *always*.", 80) == [f"It holds: {formula} always."]


def test_a_formula_of_several_lines_keeps_them():
    assert texts("$$\na_1 \\\\\nb\\,c\n$$", 80) == ["$$", "a_1 \\\\", "b\\,c", "$$"]


def test_prices_and_escaped_brackets_are_no_formula():
    assert texts(r"from $5 to $10, *or* \[x\], \$6", 80) == ["from $5 to $10, or [x], $6"]


def test_a_written_address_is_a_link_in_all_its_lines():
    address = "https://e.com/" + "long/" * 20 + "end"
    lines = markdown_lines(f"See {address}, or https://e.com/A_(b).", 40, PALETTE)
    linked = [(s.style.link, s.text) for line in lines for s in line.segments if s.style.link]
    assert "".join(text for link, text in linked if link == address) == address
    assert [text for link, text in linked if link != address] == ["https://e.com/A_(b)"]
    assert sum(address[:5] in line.text or "long/" in line.text for line in lines) > 2


def test_a_name_in_code_keeps_its_underscores():
    assert texts("- see __init__.py, C's __FILE__ and self.__dict__") == [
        "• see __init__.py, C's __FILE__ and",
        "  self.__dict__",
    ]
    assert texts("__two words__, **one**, __Note__, mid__word__") == [
        "two words, one, Note, mid__word__"
    ]
