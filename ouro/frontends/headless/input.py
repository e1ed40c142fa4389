"""The input of headless on stdin: a prompt, or messages and answers as JSON lines."""

from __future__ import annotations

import asyncio
import os
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

import msgspec

from ouro.errors import UsageError
from ouro.events import PermitChoice
from ouro.messages import PIPED
from ouro.utils.decoding import json_decoder

FIRST_BYTE_TIMEOUT = 3.0
"""Seconds to wait for the first byte of a pipe if there is a prompt already, because CI systems may
never close the pipe.

Without a prompt, a message after this time tells the user what ouro waits for.
"""
BLOCK_SIZE = 65_536


class ImageInput(msgspec.Struct, forbid_unknown_fields=True):
    media_type: str
    data: bytes
    name: str = ""


class UserInput(msgspec.Struct, tag="user", tag_field="type", forbid_unknown_fields=True):
    """A message. It steers a running turn; with `queue` it waits for the next turn."""

    text: str
    images: list[ImageInput] = []
    queue: bool = False


class PermissionInput(
    msgspec.Struct, tag="permission", tag_field="type", forbid_unknown_fields=True
):
    question_id: str
    choice: PermitChoice
    comment: str = ""


class AnswerInput(msgspec.Struct, tag="answer", tag_field="type", forbid_unknown_fields=True):
    question_id: str
    answers: list[str] = []


class InterruptInput(msgspec.Struct, tag="interrupt", tag_field="type", forbid_unknown_fields=True):
    """End the running turn."""


Input = UserInput | PermissionInput | AnswerInput | InterruptInput
_INPUT_DECODER: msgspec.json.Decoder[Input] = json_decoder(Input)


def parse_input(line: bytes) -> Input:
    """The message or answer in one line of the input. Raises UsageError if the line is not one."""
    try:
        return _INPUT_DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"A line of the input is not understood: {error}. `ouro help headless` has the format."
        ) from error


async def read_lines(stdin: int | None) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream without their ends. If `stdin` is None, which means that it is
    closed, there are none.
    """
    pieces: list[bytes] = []
    while stdin is not None and (block := await read_block(stdin)):
        # Joined only at the end of the line: an image is a line of megabytes.
        if b"\n" not in block:
            pieces.append(block)
            continue
        *full_lines, rest = b"".join([*pieces, block]).split(b"\n")
        pieces = [rest]
        for line in full_lines:
            yield line.removeprefix(BOM_UTF8)  # PowerShell and .NET write it in front of a stream
    if rest := b"".join(pieces):
        yield rest.removeprefix(BOM_UTF8)


async def read_prompt(prompt: str, stdin: int | None, say: Callable[[str], None]) -> str:
    """The text of standard input, followed by the prompt of the command line. If there are both,
    the result begins with PIPED, which marks the piped text. The prompt `-` stands for the piped
    text, as in other programs. `say` prints why the user waits.

    A terminal is not read. If there is a prompt, and nothing comes through a pipe within
    `FIRST_BYTE_TIMEOUT`, the pipe is ignored.

    Raises:
        UsageError: both are empty.
    """
    data = b""
    if prompt.strip() == "-":
        prompt = ""
    if stdin is not None and not os.isatty(stdin):
        data = await _read_all(stdin, bool(prompt.strip()), say)
    piped_text, prompt = data.decode("utf-8-sig", errors="replace").strip(), prompt.strip()
    if not piped_text and not prompt:
        raise UsageError(
            "The prompt is empty.", 'Usage: ouro -p "fix the failing test", or pipe a prompt in.'
        )
    if piped_text and prompt:
        return f"{PIPED}{piped_text}\n\n{prompt}"
    return piped_text or prompt


async def _read_all(stdin: int, has_prompt: bool, say: Callable[[str], None]) -> bytes:
    """Read a pipe to its end, and return all bytes. If there is a prompt, and nothing comes within
    FIRST_BYTE_TIMEOUT, the pipe is ignored, and the result is empty. `say` is called to print why
    the user waits.
    """
    blocks: list[bytes] = []
    timeout: float | None = FIRST_BYTE_TIMEOUT
    while True:
        try:
            async with asyncio.timeout(timeout):
                block = await read_block(stdin)
        except TimeoutError:
            if has_prompt and not blocks:
                say(
                    f"Nothing came on standard input in {FIRST_BYTE_TIMEOUT:g} s: it is ignored. `<"
                    " /dev/null` skips the wait."
                )
                return b""
            say("Waiting for the end of standard input.")
            timeout = None  # it is said once, and then waited without a limit
            continue
        if not block:
            return b"".join(blocks)
        blocks.append(block)


async def read_block(stdin: int) -> bytes:
    """Wait for the next bytes, and return them. Empty at the end of the stream. No thread is used,
    because a thread that reads would outlive an interrupt.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(stdin, readable.set)
    except OSError:  # a file or /dev/null: always readable, but a selector refuses it
        return os.read(stdin, BLOCK_SIZE)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(stdin)
    return os.read(stdin, BLOCK_SIZE)


@contextmanager
def handle_signals(handle: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Call `handle` with the number of each of these signals, in the running loop, as long as the
    block runs.
    """
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
