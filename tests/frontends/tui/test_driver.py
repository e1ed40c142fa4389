import time

import pytest
from properties import given, settings, st

from ouro.frontends.tui.driver import KeyParser, KeyReader, PasteSplitter
from ouro.frontends.tui.first_frame_prompt import LineEditor
from ouro.frontends.tui.key_events import EscapedKey

PIECES = st.lists(
    st.tuples(st.booleans(), st.text("ab\x1b[2~01;m\r\x07", min_size=1, max_size=12)), max_size=5
)


def join_keys(given_on):
    """The pieces; consecutive keys become one piece."""
    pieces = []
    for pasted, text in given_on:
        if pieces and not pasted and not pieces[-1][0]:
            pieces[-1] = (False, pieces[-1][1] + text)
        else:
            pieces.append((pasted, text))
    return pieces


@settings(max_examples=100)
@given(PIECES, st.integers(1, 7))
def test_pastes_and_keys_are_split_at_any_chunk_boundary(pieces, size):
    pieces = [(pasted, text) for pasted, text in pieces if "\x1b[20" not in text]
    sent = "".join(f"\x1b[200~{text}\x1b[201~" if pasted else f"{text}." for pasted, text in pieces)
    splitter, came = PasteSplitter(), []
    for start in range(0, len(sent), size):
        came += splitter.feed(sent[start : start + size])
    if held := splitter.release():
        came.append((False, held))
    assert join_keys(came) == join_keys(
        (pasted, text if pasted else f"{text}.") for pasted, text in pieces
    )


def test_lone_escape_is_released_when_nothing_follows():
    splitter = PasteSplitter()
    assert (splitter.feed("a\x1b"), splitter.holds, splitter.release(), splitter.holds) == (
        [(False, "a")],
        True,
        "\x1b",
        False,
    )


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("\x1b[97u", "a"),
        ("\x1b[32u", " "),
        ("\x1b[32;2u", " "),
        ("\x1b[27;2;32~", " "),  # modifyOtherKeys
        ("\x1b[97;2u", "A"),
        ("\x1b[97;65u", "A"),  # Caps Lock
        ("\x1b[233u", "é"),
        ("\x1b[57400u\x1b[57409u\x1b[57410u\x1b[57413;129u", "1./+"),  # the number pad
        ("\x1b[113;7;64u", "@"),  # AltGr, with its text
    ],
)
def test_a_key_that_is_reported_without_its_text_types_it(sent, text):
    events = KeyReader(False, lambda _: "").feed(sent)
    assert "".join(event.character for event in events if event.is_printable) == text


@pytest.mark.parametrize("sent", ["\x1b[97;5u", "\x1b[97;3u", "\x1b[57441u", "\x1b[57428u"])
def test_a_key_that_types_no_text_gets_none(sent):
    assert not [e for e in KeyReader(False, lambda _: "").feed(sent) if e.is_printable]


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b\x1b[D", "alt+left"),  # PuTTY, rxvt
        ("\x1b\x1b[H", "alt+home"),
        ("\x1b\x08", "alt+backspace"),  # a terminal whose Backspace is Ctrl+H
    ],
)
def test_alt_before_a_key_of_a_sequence_is_one_key(sent, key):
    assert [event.key for event in KeyReader(False, lambda _: "").feed(sent)] == [key]


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b\r", "alt+enter"),  # all terminals without a keyboard protocol
        ("\x1b[27;2;13~", "shift+enter"),  # xterm and tmux, modifyOtherKeys
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[13;2u", "shift+enter"),  # kitty
        ("\r", "enter"),
        ("\x1bp", "alt+p"),
        ("\x1b_", "alt+underscore"),
        ("\x1b\x7f", "ctrl+w"),
        ("\x1b[A", "up"),
    ],
)
def test_modified_key_is_recognized_in_every_terminal_encoding(sent, key):
    assert [(event.key, event.is_printable) for event in KeyParser().feed(sent)] == [(key, False)]


@pytest.mark.parametrize("character", ["j", "b", "0", "$", "O", "I", " ", "é"])
def test_a_character_right_after_esc_is_known_as_such(character):
    reader = KeyReader(False, lambda _: "")
    events = [*reader.feed(f"\x1b{character}"), *reader.release()]
    while not events:
        time.sleep(reader.wait() or 0)
        events = reader.release()
    (event,) = events
    assert isinstance(event, EscapedKey)
    assert next((key.key, key.character) for key in event.as_two_keys()) == ("escape", "\x1b")
    assert event.as_two_keys()[1].character == character


@pytest.mark.parametrize(
    "sent", ["\x1b[106;3u", "\x1b[27;3;106~", "\x1b\r", "\x1b\x7f", "\x1b[A", "j"]
)
def test_alt_that_cannot_be_esc_is_not_taken_for_it(sent):
    assert not any(isinstance(event, EscapedKey) for event in KeyParser().feed(sent))


ANSWERS = {
    "kind": "\x1b[?62;4c",
    "second kind": "\x1b[>0;276;0c",
    "name": "\x1bP>|tmux 3.4\x1b\\",
    "keyboard protocol": "\x1b[?1u",
    "colour": "\x1b]4;1;rgb:cc/00/00\x1b\\",
    "foreground": "\x1b]10;rgb:ff/ff/ff\x07",
    "light or dark": "\x1b[?997;1n",
    "graphics": "\x1b_Gi=1;OK\x1b\\",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_the_terminal_to_another_program_is_no_text(answer):
    reader = KeyReader(False, lambda _: "")
    assert [event.key for event in reader.feed(f"a{answer}b")] == ["a", "b"]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_the_first_frame_takes_no_answer_of_the_terminal_for_text(answer):
    typed = LineEditor()
    typed.feed(f"a{answer}b", 0.0)
    assert typed.text == "ab"


@pytest.mark.parametrize("end", ["\x1b\\", "\x07"])
def test_an_answer_about_the_background_may_come_in_two_parts(end):
    answer = f"\x1b]11;rgb:ffff/ffff/ffff{end}"
    for size in range(1, len(answer)):
        backgrounds = []

        def take(match, backgrounds=backgrounds):
            backgrounds.append(match["background"])
            return ""

        reader = KeyReader(False, take)
        events = reader.feed(f"a{answer[:size]}")
        if size > 2:  # else it may be Esc, or Alt with a bracket
            assert reader.wait() > 0.1
        events += reader.feed(f"{answer[size:]}b")
        assert [event.key for event in events] == ["a", "b"]
        assert backgrounds == ["rgb:ffff/ffff/ffff"]


def test_alt_with_a_bracket_is_still_a_key():
    reader = KeyReader(False, lambda _: "")
    events = reader.feed("\x1b]")
    while not events and reader.wait() is not None:
        time.sleep(reader.wait())
        events = reader.release()
    assert events[-1].key.endswith("right_square_bracket")


def test_a_paste_keeps_what_looks_like_an_answer():
    reader = KeyReader(False, lambda _: "")
    (paste,) = reader.feed("\x1b[200~see \x1b[?62;4c\x1b[201~")
    assert paste.text == "see \x1b[?62;4c"


def test_alt_with_a_letter_that_begins_an_answer_is_a_key():
    reader = KeyReader(False, lambda _: "")
    keys = [event.key for event in [*reader.feed("\x1bP"), *reader.feed("ab\x1b\\")]]
    assert keys[-3:] == ["a", "b", "alt+backslash"]
