import pytest

from ouro.frontends.tui.first_frame_prompt import pasted_text
from ouro.frontends.tui.widgets.folded_pastes import Placeholders
from ouro.session.turn_queue import Draft


def test_a_short_paste_stays_text_without_control_characters():
    assert Placeholders().fold("one\r\ntwo\rthree\x07\x1b[31m\tend") == "one\ntwo\nthree[31m\tend"


@pytest.mark.parametrize(
    "line_break", ["\x1b[13;1u", "\x1b[13u", "\x1b[106;5u", "\x1b[27;5;106~", "\r", "\r\n"]
)
def test_a_paste_through_tmux_keeps_its_lines(line_break):
    assert pasted_text(f"one{line_break}two") == "one\ntwo"


def test_long_pastes_are_chips_that_differ_and_unfold():
    attachments = Placeholders()
    lines, long = "x\n" * 20, "y" * 2001
    first, second, third = map(attachments.fold, (lines, lines.upper(), long))
    assert attachments.fold(lines) == first
    assert (first, second, third) == (
        "[pasted 20 lines]",
        "[pasted 20 lines #2]",
        "[pasted 2,001 characters]",
    )
    assert attachments.expand(f"a {third} b") == Draft(f"a {long} b")


def test_a_chip_that_was_changed_is_ordinary_text():
    attachments = Placeholders()
    attachments.fold("x\n" * 20)
    assert attachments.expand("[pasted 21 line]") == Draft("[pasted 21 line]")


def test_a_returned_message_has_its_pastes_folded_again():
    attachments = Placeholders()
    first, second = attachments.fold("x\n" * 20), attachments.fold("y\n" * 20)
    sent = f"look: {first} and {second}"
    draft = attachments.expand(sent)
    attachments.note_sent(sent)
    attachments.clear()
    attachments.fold("z\n" * 20)

    returned = attachments.restore(draft)

    assert returned == "look: [pasted 20 lines #2] and [pasted 20 lines #3]"
    assert attachments.expand(returned) == draft


def test_a_paste_that_was_unfolded_before_it_was_sent_stays_unfolded():
    attachments = Placeholders()
    draft = attachments.expand(attachments.expand_text(attachments.fold("x\n" * 20)))
    attachments.note_sent(draft.text)
    attachments.clear()

    assert attachments.restore(draft) == draft.text
