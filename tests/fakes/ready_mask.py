"""A mask that waits for its scanner, however long that takes to be built."""

from collections.abc import Callable

from ouro.safety import SecretMask


def ready_mask() -> Callable[[str], str]:
    """The mask of a SecretMask without values of its own."""
    return SecretMask(patience=300).mask
