"""The input of headless on stdin: a prompt, or messages and answers as JSON lines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

import msgspec

from ouro.errors import UsageError
from ouro.events import PermitChoice
from ouro.messages import PIPED
from ouro.utils.decoding import json_decoder

PATIENCE = 3.0
"""Seconds to wait for the first byte of a pipe if there is a prompt already: CI systems may never
close the pipe.

Without a prompt, a message after this time shows the user what ouro waits for.
"""
BLOCK = 65_536


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
_DECODER: msgspec.json.Decoder[Input] = json_decoder(Input)


def parse_input(line: bytes) -> Input:
    """One line of the input. Raises UsageError, whose message names the error."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"A line of the input is not understood: {error}. `ouro help headless` has the format."
        ) from error


async def read_lines(stdin: int | None) -> AsyncGenerator[bytes, None]:
    """The lines of a stream without their ends; none if it is closed."""
    pieces: list[bytes] = []
    while stdin is not None and (block := await read_block(stdin)):
        # Joined only at the end of the line: an image is a line of megabytes.
        if b"\n" not in block:
            pieces.append(block)
            continue
        *whole, rest = b"".join([*pieces, block]).split(b"\n")
        pieces = [rest]
        for line in whole:
            yield line
    if rest := b"".join(pieces):
        yield rest


async def read_prompt(prompt: str, stdin: int | None, say: Callable[[str], None]) -> str:
    """The text of stdin, followed by the prompt of the command line.

    A terminal is not read. If there is a prompt, a silent pipe is ignored after `PATIENCE`.

    Raises:
        UsageError: both are empty.
    """
    piped = b""
    if stdin is not None and not os.isatty(stdin):
        piped = await _read_all(stdin, bool(prompt.strip()), say)
    material, prompt = piped.decode(errors="replace").strip(), prompt.strip()
    if not material and not prompt:
        raise UsageError(
            "The prompt is empty.", 'Usage: ouro -p "fix the failing test", or pipe a prompt in.'
        )
    return f"{PIPED}{material}\n\n{prompt}" if material and prompt else material or prompt


async def _read_all(stdin: int, has_prompt: bool, say: Callable[[str], None]) -> bytes:
    """Everything up to the end of a pipe; empty if it stays silent and there is a prompt. `say`
    prints why the user waits.
    """
    blocks: list[bytes] = []
    patience: float | None = PATIENCE
    while not blocks or blocks[-1]:
        try:
            async with asyncio.timeout(patience):
                blocks.append(await read_block(stdin))
        except TimeoutError:
            if has_prompt and not blocks:
                say(
                    f"Nothing came on standard input in {PATIENCE:g} s: it is ignored. `<"
                    " /dev/null` skips the wait."
                )
                return b""
            say("Waiting for the end of standard input.")
            patience = None
    return b"".join(blocks)


async def read_block(stdin: int) -> bytes:
    """The next bytes. Waits without a thread: a thread that reads outlives an interrupt."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(stdin, readable.set)
    except OSError:  # a file or /dev/null: always readable, but a selector refuses it
        return os.read(stdin, BLOCK)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(stdin)
    return os.read(stdin, BLOCK)


@contextmanager
def handle_signals(handle: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Call `handle` with the number of each of these signals, from the running loop."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
