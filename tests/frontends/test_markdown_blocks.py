import pytest
from properties import given, settings, st

from ouro.frontends.plain.printer import MarkdownBlocks


def blocks_of(*pieces):
    blocks = MarkdownBlocks()
    given_early = [block for piece in pieces for block in blocks.add(piece)]
    return given_early, blocks.finish()


def test_block_is_returned_once_the_next_one_starts():
    assert blocks_of("One\ntwo\n", "\nThree") == ([], ["One\ntwo", "Three"])
    assert blocks_of("One\n\nTwo\n\n", "Three\n") == (["One", "Two"], ["Three"])


def test_code_fence_is_one_block():
    fence = "```python\ndef f():\n\nx = 1\n```"
    assert blocks_of(f"A\n\n{fence}\n\nB\n") == (["A", fence], ["B"])


def test_longer_fence_contains_a_shorter_one():
    fence = "````\n```\n\na\n```\n\nb\n````"
    assert blocks_of(f"{fence}\n\nB\n") == ([fence], ["B"])


def test_indented_lines_after_a_blank_one_belong_to_the_block():
    assert blocks_of("- a\n\n  more\n\nB\n") == (["- a\n\n  more"], ["B"])


def test_discard_drops_the_text_of_a_failed_attempt():
    blocks = MarkdownBlocks()
    blocks.add("```\nhalf")
    blocks.discard()
    assert (blocks.add("A\n\nB"), blocks.finish()) == ([], ["A", "B"])


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```\n", "  b\n", "- c\n"]), max_size=20))
def test_blocks_do_not_depend_on_chunk_boundaries(pieces):
    text = "".join(pieces)
    early, late = blocks_of(*pieces)
    whole_early, whole_late = blocks_of(text)
    assert early + late == whole_early + whole_late
    assert "".join("".join(early + late).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["", "\n\n\n", "   \n"])
def test_blank_text_has_no_blocks(text):
    assert blocks_of(text) == ([], [])
