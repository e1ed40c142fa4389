"""An answer that arrives in pieces is rendered like the complete one."""

import pytest
from properties import example, given, settings, st

from ouro.frontends.tui.blocks.markdown import markdown_lines
from ouro.frontends.tui.blocks.markdown_pieces import MIN_PART, MarkdownPieces
from ouro.frontends.tui.blocks.messages import MARGIN, AnswerBlock, ThinkingBlock
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import indent, wrap

PALETTE = Palette({})
LINES = (
    "", "", "", "word", "some words that go on and on until the line is full", "# Title", "===", "---", "***",
    "- item", "* item", "+ item", "  - nested", "    deep", "\ttab", "1. one", "2. two", "7) seven",
    "   1. in it", "> quote", "> - list in quote", "```", "```python", "~~~", "````", "  ```", "- ```js",
    "  code in item", "  ```", "| a | b |", "|---|:-:|", "| 1 | `2` |", "a | b", "-|-", "<div>", "<!-- no",
    "-->", "[ref]: https://example.com", "a [ref] b", "[x](https://e.com)", "\\", "line  ", "**bo", "ld**",
    "'''", "\"\"\"", "def f(): # x", "日本語テキスト", "👩‍💻 é", "&#8238;x", "* * *", "- - -", "10. ten", "0. zero",
    "    - four", "![i](u)", "**strong** words, `code` and 日本語 " * 40, "日本語" * 400, "a * b _c d " * 120,
)  # fmt: skip
documents = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join)
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def draw(answer, width=50):
    return [
        (line.text, line.gutter, line.joint, tuple(str(s.style) for s in line.segments))
        for line in answer.lines(width, PALETTE)
    ]


MAX_PIECES = 200
"""Pieces of one drawn answer: a frame is drawn after each, and a document may have 20,000 letters."""


def stream_answer(text, sizes):
    answer, place, turn = AnswerBlock(), 0, 0
    pieces = len(text) * len(sizes) // sum(sizes)
    longer = 1 + pieces // MAX_PIECES
    while place < len(text):
        size = sizes[turn % len(sizes)] * longer
        answer.append(text[place : place + size])
        answer.lines(50, PALETTE)
        place, turn = place + size, turn + 1
    return answer


@settings(max_examples=40)
@given(documents, cuts)
@example("1. a\n\n2", [1])
@example("- a\n\n  ```\n  x\n  ```\n- b\n```\n", [1])
@example("```py\n" + "x = '''\n" * 60 + "```", [7])
@example("```\nx\n```\n ", [1])
@example("a * b _c d " * 60, [1])
@example("日本語" * 200 + "\n- item", [1])
def test_streamed_answer_looks_like_the_whole_one(text, sizes):
    answer = stream_answer(text, sizes)
    assert draw(answer) == draw(AnswerBlock(text))


@settings(max_examples=40)
@given(documents, cuts, st.floats(0, 1))
@example("word\n```\n\n   1. in it", [1], 0.625)
def test_partial_answer_looks_like_an_answer_of_that_text(text, sizes, share):
    half = text[: int(len(text) * share)]
    answer = stream_answer(half, sizes)
    assert draw(answer) == draw(AnswerBlock(half))


WORDS = (
    "a", "**strong** words", "`two  spaces`", "[a link](https://e.com)", "日本語", "snake_case", "\n", "*", "[1]",
    "(see", "``x`` y", "1. b", "- b", "\n--", "\n***", "a * b", "__init__", r"$a\, b_1$", "$5", r"\(a_1 + b\)", "$$\nx_1 * y\n$$", "~~old~~", '[t](https://e.com/A_(b) "c")',
)  # fmt: skip


@settings(max_examples=20)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), st.integers(9, 80))
@example(["a"], 9)
@example(["日本語"], 9)
@example(["\n--"], 40)
@example(["\n***"], 40)
def test_parts_of_a_long_paragraph_look_like_one(words, width):
    text = "Some " + " words ".join(words * (600 // len(words))) + " end"

    def characters(lines):
        return [
            (line.text, line.joint, [str(s.style) for s in line.segments for _ in s.text])
            for line in lines
        ]

    drawn = AnswerBlock(text).lines(width + 2 * len(MARGIN), PALETTE)
    whole = indent(
        markdown_lines(text, width, PALETTE), (MARGIN, PALETTE.text), (MARGIN, PALETTE.text)
    )
    assert characters(drawn) == characters(whole)


@pytest.mark.parametrize("block", [AnswerBlock(), ThinkingBlock()])
def test_a_frame_wraps_only_the_end_of_a_long_paragraph(block, monkeypatch):
    wrapped = []

    def wrap_and_count(runs, width):
        wrapped.append(sum(len(text) for text, _ in runs))
        return wrap(runs, width)

    monkeypatch.setattr(f"{markdown_lines.__module__}.wrap", wrap_and_count)
    monkeypatch.setattr(f"{wrap.__module__}.wrap", wrap_and_count)
    block.set_open(True)
    for _ in range(400):
        block.append(
            "**some** words, `code`, a * b, __init__ and [a link](https://example.com/A_(b)"
            ' "title") '
        )
        block.lines(80, PALETTE)
    assert max(wrapped) < 4 * MIN_PART


@pytest.mark.parametrize(
    "text", ["Three things:\n- one\n", "- item\n  - nested\n", "Three things:\n\n- one"]
)
def test_a_list_that_begins_makes_no_heading(text):
    for end in range(1, len(text)):
        lines = AnswerBlock(text[:end]).lines(80, PALETTE)
        assert not any(s.style.bold for line in lines for s in line.segments)


def test_a_long_paragraph_above_a_rule_is_not_half_a_heading():
    lines = markdown_lines("some words", 80, PALETTE) + AnswerBlock(
        "some words " * 100 + "\n---\n"
    ).lines(80, PALETTE)
    assert len({str(s.style) for line in lines for s in line.segments}) == 1


@settings(max_examples=100)
@given(documents)
def test_pieces_add_up_to_the_text(text):
    pieces = MarkdownPieces()
    tail = pieces.update(text)
    joined = "".join(piece.source for piece in [*pieces.finished, *tail])
    assert text.startswith(joined)
    assert not text[len(joined) :].strip()


def test_only_the_last_piece_stays_open():
    pieces = MarkdownPieces()
    tail = pieces.update("# Title\n\nwords\n\n- a\n- b\n\nmore\nand")
    assert [piece.source for piece in pieces.finished] == [
        "# Title\n\n",
        "words\n\n",
        "- a\n",
        "- b\n\n",
    ]
    assert [piece.source for piece in tail] == ["more\nand"]


@pytest.mark.parametrize("language", ["python", "html", "json", "nonsense", ""])
def test_long_code_is_coloured_the_same_in_parts_and_whole(language):
    code = "".join(
        f'def f{n}():\n    """Doc\n\n    of {n}."""\n    return {{"a": [{n}, "x"]}}\n'
        for n in range(60)
    )
    text = f"```{language}\n{code}```\n\nend"
    answer = stream_answer(text, [53])
    assert draw(answer) == draw(AnswerBlock(text))
