"""A secret mask that waits for its scanner."""

from collections.abc import Callable

from ouro.safety import SecretMask


def ready_mask() -> Callable[[str], str]:
    """The mask of a SecretMask without known values."""
    return SecretMask(patience=300).mask
