"""Blocks are added and removed without a visit of all others."""

import pytest

from ouro.frontends.tui.blocks.block_list import BlockList, TranscriptBlock
from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine


class Counted(TranscriptBlock):
    """A block of two lines that counts how often it is estimated."""

    estimated = 0

    def estimate(self, width):
        Counted.estimated += 1
        return 2

    def as_markdown(self):
        return ""

    def _draw(self, width, palette):
        return [StyledLine([]), StyledLine([])]


def column(count):
    blocks = BlockList(Palette({}))
    for _ in range(count):
        blocks.add(Counted())
    Counted.estimated = 0
    return blocks


@pytest.mark.parametrize("count", [10, 1_000])
def test_removing_the_last_blocks_visits_no_others(count):
    blocks = column(count)
    blocks.remove(blocks.blocks[-2:])
    assert Counted.estimated == 0
    assert (len(blocks.blocks), blocks.total) == (count - 2, 3 * (count - 2) - 1)


@pytest.mark.parametrize("count", [10, 1_000])
def test_removing_nothing_visits_no_block(count):
    blocks = column(count)
    total = blocks.total
    blocks.remove([])
    blocks.remove([Counted()])
    assert (Counted.estimated, blocks.total) == (0, total)


def test_blocks_after_a_removed_one_move_up():
    blocks = column(10)
    tops = [blocks.top(block) for block in blocks.blocks]
    removed = blocks.blocks[3]
    blocks.remove([removed])
    assert [blocks.top(block) for block in blocks.blocks] == tops[:-1]
    assert [block.index for block in blocks.blocks] == list(range(9))
    assert removed.changed_blocks is None


def test_the_first_block_has_no_gap_after_a_removal():
    blocks = column(4)
    blocks.remove(blocks.blocks[:2])
    assert [block.gap for block in blocks.blocks] == [False, True]
    assert blocks.total == 5
    assert blocks.line(4) is not None
    assert blocks.line(5) is None


def test_a_removed_block_is_not_drawn():
    blocks = column(3)
    gone = blocks.blocks[-1]
    gone.invalidate()
    blocks.remove([gone])
    blocks.draw_changes()
    assert not gone.last_lines


def test_lines_that_were_asked_for_and_not_painted_are_in_the_next_frame():
    """The pointer asks for the line below it between two frames."""
    blocks = BlockList(Palette({}))
    answer = AnswerBlock("one")
    blocks.add(answer)
    blocks.measure_end(10)
    answer.append(" two")
    blocks.draw_changes()
    answer.append(" three")
    assert blocks.line(0).text.strip() == "one two three"
    assert blocks.draw_changes() == 0
