"""What is typed while ouro starts ends as the same text in LineEditor and in the real prompt."""

import asyncio
import random
import re
import time

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of
from properties import examples

from ouro.frontends.tui.driver import KeyReader
from ouro.frontends.tui.first_frame_prompt import LineEditor

PIECES = (
    *(
        "a",
        "Z",
        "7",
        " ",
        "ß",
        "é",
        "e\u0301",
        "日本",
        "🙂",
        "👩‍💻",
        "ع",
        "कि",
        "\u200c",
        "ไม่",
        "🇩🇪",
        "👍🏽",
        "\U0001fae8",
        "한",
        "\u1112\u1161",
        "\u202f",
        "\u200b",
        "\u00a0",
    ),
    *("?", "/", "@", "#", "!", "`", "[", "]", "~", "'", '"', "(", ")", "{", "<", "\\", "…"),
    *("\n", "\\\r", "\x7f", "\x08", "\x7f\x7f", "\x7f", "\x03"),
    *("word ", "two words", "x" * 90, "def f():\n\treturn 1\n"),
    "\x1b[200~pasted\x1b[201~",
    "\x1b[200~one\rtwo\r\nthree\x1b[201~",
    "\x1b[200~tab\tbell\x07 escape\x1b[A end\x1b[201~",
    "\x1b[200~\x1b[201~",
)
SECOND_APART = 1.0
EXAMPLES = examples(80)


def cut_anywhere(data: bytes, draw: random.Random) -> list[bytes]:
    """The bytes in chunks that a terminal or a slow line might send."""
    places = sorted(draw.sample(range(len(data) + 1), min(3, len(data))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def typed_by(seed: int) -> list[bytes]:
    draw = random.Random(seed)
    chunks: list[bytes] = []
    for piece in draw.choices(PIECES, k=draw.randint(1, 12)):
        chunks += cut_anywhere(piece.encode(), draw)
    return [chunk for chunk in chunks if chunk]


def edit(chunks: list[bytes], began: float) -> LineEditor:
    editor, decode = LineEditor(), KeyReader(False, lambda _: "")._decode
    for number, chunk in enumerate(chunks):
        editor.feed(decode(chunk), began + number * SECOND_APART)
    return editor


async def type_into(pilot, chunks: list[bytes], began: float) -> str:
    keys = KeyReader(False, lambda _: "")
    for number, chunk in enumerate(chunks):
        for event in keys.read(chunk):
            event.time = began + number * SECOND_APART
            pilot.app.post_message(event)
    handled, prompt = asyncio.Event(), pilot.app.conversation.prompt
    pilot.app.call_later(prompt.call_later, handled.set)
    await handled.wait()
    return prompt.text


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
async def test_line_editor_and_prompt_end_with_the_same_text_for_the_same_bytes(size):
    compared, different = 0, []
    async with screen_of(FakeSession()).run_test(size=size) as pilot:
        await opened(pilot)
        for seed in range(EXAMPLES):
            began = time.monotonic() + 1000 * seed
            chunks = typed_by(seed)
            editor = edit(chunks, began)
            # The editor has left the rest to the prompt; Enter may complete such a name.
            is_left_to_the_prompt = not editor.understands or editor.leaves or editor.entered
            may_complete = re.search(r"^[/#!]|@", editor.text)
            if is_left_to_the_prompt or (may_complete and b"\r" in b"".join(chunks)):
                continue
            text = await type_into(pilot, chunks, began)
            compared += 1
            if text != editor.text:
                different.append((seed, b"".join(chunks), editor.text, text))
            pilot.app.conversation.prompt.fill("")
    assert different == []
    assert compared > EXAMPLES / 3


@pytest.mark.parametrize(
    "typed", ["👩‍💻", "می‌خواهم", "«\u202foui\u202f»", "a\u00a0b", "\U0001fae8\U0001fa77", "क्‍ष"]
)
async def test_characters_that_python_does_not_print_are_typed(typed):
    async with screen_of(FakeSession()).run_test() as pilot:
        await opened(pilot)
        assert await type_into(pilot, [typed.encode()], time.monotonic()) == typed


@pytest.mark.parametrize("typed", ["\x00", "\x01", "\x1f", "\x9f"])
def test_control_characters_are_no_text(typed):
    events = KeyReader(False, lambda _: "").feed(typed)
    assert not any(event.is_printable for event in events)


def test_a_late_answer_about_the_background_alone_does_not_end_the_keys():
    keys = KeyReader(False, lambda _: "")
    assert keys.feed("\x1b]11;rgb:0000/0000/0000\x1b\\") == []
    assert [event.key for event in keys.feed("y")] == ["y"]
