"""Placeholders: the long pastes and the images of the message in the prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ouro.frontends.tui.first_frame_prompt import pasted_text
from ouro.messages import Image
from ouro.session.turn_queue import Draft
from ouro.utils.text import byte_size

FOLD_CHARACTERS = 2_000
FOLD_LINES = 10
"""A paste with more characters or lines gets a placeholder."""
_MAX_SENT = 10
"""How many pastes of sent messages are known: a message can come back from the queue."""
_IMAGE_PLACEHOLDER = re.compile(r"\[image \d+: [^\]\n]+\]")


@dataclass(slots=True)
class Placeholders:
    """The pastes and images behind `[pasted 120 lines]` and `[image 1: PNG, 34 KB]`, by these
    placeholders.
    """

    _pastes: dict[str, str] = field(default_factory=dict)
    _images: dict[str, Image] = field(default_factory=dict)
    _sent: list[str] = field(default_factory=list)
    """Pastes that were folded in messages that were sent."""

    def note_sent(self, text: str) -> None:
        """Note the folded pastes of a text that is sent, in case that the message is returned."""
        sent = [*self._sent, *(self._pastes[name] for name in self.pastes_in(text))]
        self._sent = sent[-_MAX_SENT:]

    def clear(self) -> None:
        """Forget the placeholders, but not what was noted as sent."""
        self._pastes.clear()
        self._images.clear()

    def fold(self, pasted: str) -> str:
        """What to put into the prompt for a paste: the text without control characters, or for a long
        text a placeholder. The same text gets the same placeholder.
        """
        text = pasted_text(pasted)
        lines = len(text.splitlines())
        if len(text) <= FOLD_CHARACTERS and lines <= FOLD_LINES:
            return text
        for old_placeholder, old_text in self._pastes.items():
            if old_text == text:
                return old_placeholder
        size = f"{lines:,} lines" if lines > FOLD_LINES else f"{len(text):,} characters"
        placeholder = f"[pasted {size}]"
        number = 2
        while placeholder in self._pastes:  # another paste of the same size
            placeholder = f"[pasted {size} #{number}]"
            number += 1
        self._pastes[placeholder] = text
        return placeholder

    def add_image(self, image: Image) -> str:
        """Attach an image; returns its placeholder for the prompt."""
        kind = image.media_type.rpartition("/")[2].upper()
        facts = f"{kind}, {byte_size(len(image.data))}"
        number = len(self._images) + 1
        while f"[image {number}: {facts}]" in self._images:  # of an undone message
            number += 1
        placeholder = f"[image {number}: {facts}]"
        self._images[placeholder] = image
        return placeholder

    def expand(self, text: str) -> Draft:
        """The message to send. Pastes are written in full. Images are attached if their
        placeholders are still in the text.
        """
        text = self.expand_text(text).strip()
        return Draft(text, tuple(image for name, image in self._images.items() if name in text))

    def expand_text(self, text: str) -> str:
        """The text with the pastes instead of their placeholders. Placeholders of images stay."""
        for name, pasted in self._pastes.items():
            text = text.replace(name, pasted)
        return text

    def restore(self, draft: Draft) -> str:
        """Attach the images of a message again that was undone, not sent, or withdrawn from the queue,
        and return its text. Pastes that were folded when it was sent are folded again. It has the
        placeholders of the images in their order. One without a placeholder, as other programs send
        it, gets one at the end.
        """
        placeholders = _IMAGE_PLACEHOLDER.findall(draft.text)
        self._images |= zip(placeholders, draft.images, strict=False)
        further_images = draft.images[len(placeholders) :]
        text = self._fold_sent(draft.text)
        return " ".join(filter(None, [text, *map(self.add_image, further_images)]))

    def _fold_sent(self, text: str) -> str:
        """The text with placeholders for the pastes that were folded when it was sent."""
        for pasted in self._sent:
            # A message is sent without the spaces at its ends, where a paste may have some.
            found = pasted if pasted in text else pasted.strip()
            if found and found in text:
                text = text.replace(found, self.fold(found))
        return text

    def placeholders(self) -> list[str]:
        return [*self._pastes, *self._images]

    def pastes_in(self, text: str) -> list[str]:
        """The placeholders of long pastes that a text has."""
        return [name for name in self._pastes if name in text]
