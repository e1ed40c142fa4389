"""A mask whose scanner is built once for all tests: that takes seconds."""

import functools
import os
import tempfile
from collections.abc import Callable

from ouro.safety.secrets import SecretMask


@functools.cache
def ready_mask() -> Callable[[str], str]:
    """The mask of a SecretMask without values of its own."""
    before = os.environ.get("OURO_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OURO_HOME"] = folder
        try:
            mask = SecretMask(patience=300).mask
            mask("a text that waits for the scanner: 0123456789abcdefgh")
        finally:
            os.environ.pop("OURO_HOME") if before is None else os.environ.update(OURO_HOME=before)
    return mask
