from ouro.frontends.tui.widgets.prompt import Attachments, Draft


def test_a_short_paste_stays_text_without_control_characters():
    assert Attachments().fold("one\r\ntwo\rthree\x07\x1b[31m\tend") == "one\ntwo\nthree[31m\tend"


def test_long_pastes_are_chips_that_differ_and_unfold():
    attachments = Attachments()
    lines, long = "x\n" * 20, "y" * 2001
    first, second, third = attachments.fold(lines), attachments.fold(lines), attachments.fold(long)
    assert (first, second, third) == (
        "[pasted 20 lines]",
        "[pasted 20 lines #2]",
        "[pasted 2,001 characters]",
    )
    assert attachments.expand(f"a {third} b") == Draft(f"a {long} b")


def test_a_chip_that_was_changed_is_ordinary_text():
    attachments = Attachments()
    attachments.fold("x\n" * 20)
    assert attachments.expand("[pasted 21 line]") == Draft("[pasted 21 line]")
