"""Attachments: the long pastes and images that placeholders in a draft stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ouro.messages import Image
from ouro.session.turn_queue import Draft

FOLD_CHARACTERS = 2_000
FOLD_LINES = 10
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_IMAGE = re.compile(r"\[image \d+: [^\]\n]+\]")


@dataclass(slots=True)
class Attachments:
    """The pastes and images behind `[pasted 120 lines]` and `[image 1: PNG, 34 kB]`."""

    _pastes: dict[str, str] = field(default_factory=dict)
    _images: dict[str, Image] = field(default_factory=dict)

    def fold(self, pasted: str) -> str:
        """A pasted text without control characters; a placeholder if it is long."""
        text = _CONTROL.sub("", pasted.replace("\r\n", "\n").replace("\r", "\n"))
        lines = text.count("\n") + 1
        if len(text) <= FOLD_CHARACTERS and lines <= FOLD_LINES:
            return text
        size = f"{lines:,} lines" if lines > FOLD_LINES else f"{len(text):,} characters"
        names = (f"[pasted {size}]", *(f"[pasted {size} #{number}]" for number in range(2, len(self._pastes) + 3)))
        placeholder = next(name for name in names if name not in self._pastes)
        self._pastes[placeholder] = text
        return placeholder

    def add_image(self, image: Image) -> str:
        kind = image.media_type.rpartition("/")[2].upper()
        placeholder = f"[image {len(self._images) + 1}: {kind}, {max(1, len(image.data) // 1000):,} kB]"
        self._images[placeholder] = image
        return placeholder

    def expand(self, text: str) -> Draft:
        """The message to send: pastes in full, and the images whose placeholders are still there."""
        text = self.expand_text(text).strip()
        return Draft(text, tuple(image for name, image in self._images.items() if name in text))

    def expand_text(self, text: str) -> str:
        """`text` with the pastes in full."""
        for name, pasted in self._pastes.items():
            text = text.replace(name, pasted)
        return text

    def restore(self, draft: Draft) -> str:
        """The text of a draft that comes back to be edited; its placeholders stand for its images again."""
        self._images |= zip(_IMAGE.findall(draft.text), draft.images, strict=False)
        return draft.text

    def ending(self, before: str) -> str:
        """The placeholder that `before` ends with; empty if there is none."""
        return next((name for name in (*self._pastes, *self._images) if before.endswith(name)), "")
