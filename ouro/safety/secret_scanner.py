"""What looks like a secret: kingfisher's shapes, in one scanner for the whole process."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir, get_home

_REST = 2.0
"""Seconds after `prepare` before the scanner is built unasked: the first request goes first."""


class SecretScanner:
    """Finds what looks like a secret. May be called from any thread.

    It is built in the background: that takes a quarter of a second, and seconds the first time ever.
    """

    def __init__(self) -> None:
        self._scanner: Any = None
        self._building: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wanted = threading.Event()

    def prepare(self) -> None:
        with self._lock:
            if self._building is None:
                self._building = threading.Thread(target=self._build, name="secret-rules", daemon=True)
                self._building.start()

    def find(self, data: bytes, until: float) -> list[tuple[int, int, str]]:
        """The secrets in `data`: where each starts, where it ends, and the name of its rule.

        Waits for the scanner until `until` (of `time.monotonic`); finds nothing where it is not there by then.
        """
        self.prepare()
        self._wanted.set()
        if self._building is not None:
            self._building.join(max(0.0, until - time.monotonic()))
        return [] if self._scanner is None else list(_spans(self._scanner.scan(data)))

    def _build(self) -> None:
        self._wanted.wait(_REST)
        try:
            from kingfisher_sdk import Rules, Scanner

            self._scanner = Scanner(Rules(cache_dir=_cache_folder()))
        except Exception as error:  # noqa: BLE001 (what else is masked continues without it)
            log.warning("secrets are masked by ouro's own rules only: %s", error)


@cache
def shared_scanner() -> SecretScanner:
    """The one of this process: it knows no values, takes 25 MB, and is the same for every session."""
    return SecretScanner()


def _cache_folder() -> Any:
    """Where compiled rules are kept; None leaves it to the scanner's own variable, where that is set."""
    if os.environ.get("KF_RULE_CACHE_DIR"):
        return None
    folder = get_home() / "cache" / "secret-rules"
    try:
        return ensure_private_dir(folder)
    except OSError:
        # A home that cannot be written: the rules are compiled anew each time.
        return folder


def _spans(findings: Iterable[Any]) -> Iterator[tuple[int, int, str]]:
    for finding in findings:
        found = finding.to_dict()
        if finding.visible:
            rule = re.sub(r"[^a-z0-9]+", "-", str(found["rule_id"]).rpartition(".")[2].lower())
            yield found["location"]["start_offset"], found["location"]["end_offset"], rule
