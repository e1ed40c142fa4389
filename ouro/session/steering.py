"""Steering: what the user sends to a running turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import Prompt
from ouro.messages import Image


class Steering(msgspec.Struct, eq=False):
    """The messages and outputs that wait for the next tool call of the running turn."""

    environment: Environment
    warn: Callable[[str], None]
    """Shows the user why an image that a message names cannot be sent."""
    _messages: list[Prompt] = msgspec.field(default_factory=list)
    _outputs: list[Prompt] = msgspec.field(default_factory=list)
    """The outputs of the user's shell lines. These are never moved back to the input."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The messages that wait, in the order of their delivery."""
        return tuple(prompt.text for prompt in self._messages)

    def add(self, text: str, images: Sequence[Image] = ()) -> None:
        self._messages.append(Prompt(text, tuple(images)))

    def add_output(self, text: str) -> None:
        self._outputs.append(Prompt(text))

    def remove(self, index: int) -> Prompt:
        """Remove the message at this index of `texts`, and return it. Raises IndexError."""
        return self._messages.pop(index)

    def change(self, index: int, text: str) -> None:
        """Replace the text of the message at this index; its images stay. Raises IndexError."""
        self._messages[index] = replace(self._messages[index], text=text)

    def move(self, index: int, target: int) -> None:
        """Move the message at this index to the index `target`. Raises IndexError."""
        self._messages.insert(target, self._messages.pop(index))

    def take_next(self) -> list[Prompt]:
        """Take the next prompt that waits: an output if there is one, otherwise a message, to which
        the images that it names are added. Returns a list of one prompt; empty if none waits.
        """
        if self._outputs:
            return [self._outputs.pop(0)]
        if not self._messages:
            return []
        prompt = self._messages.pop(0)
        images, problems = self.environment.read_images(prompt.text)
        for problem in problems:
            self.warn(problem)
        return [replace(prompt, images=(*prompt.images, *images))]
