"""The keyring of the system, if there is one that works without asking."""

from __future__ import annotations

from typing import Any


def find_keyring(service: str) -> Any:
    """The keyring (`get_password`, `set_password`, `delete_password`); None if there is none."""
    try:
        import keyring
        from keyring.backends import fail

        ring = keyring.get_keyring()
        if isinstance(ring, fail.Keyring) or getattr(ring, "priority", 0) < 1:
            return None
        ring.get_password(service, "probe")
    except Exception:  # noqa: BLE001 (a backend may raise anything: no bus, locked, not installed)
        return None
    return ring
