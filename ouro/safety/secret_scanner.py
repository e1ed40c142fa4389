"""SecretScanner: kingfisher's patterns of secrets, in one scanner per process."""

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
    """Finds text that looks like a secret. Thread-safe.

    Built in the background: 0.25 s, and seconds at the first use ever, when the rules are compiled.
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
        """The secrets in `data`: start, end and rule name of each.

        Waits for the scanner until `until` (of `time.monotonic`); returns nothing if it is not ready by then.
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
    """The scanner of the process: it holds no values, takes 25 MB, and is the same for every session."""
    return SecretScanner()


def _cache_folder() -> Any:
    """The folder of compiled rules; None if the scanner's own variable sets it."""
    if os.environ.get("KF_RULE_CACHE_DIR"):
        return None
    folder = get_home() / "cache" / "secret-rules"
    try:
        return ensure_private_dir(folder)
    except OSError:
        # If home is not writable, the rules are compiled each time.
        return folder


def _spans(findings: Iterable[Any]) -> Iterator[tuple[int, int, str]]:
    for finding in findings:
        found = finding.to_dict()
        if finding.visible:
            rule = re.sub(r"[^a-z0-9]+", "-", str(found["rule_id"]).rpartition(".")[2].lower())
            yield found["location"]["start_offset"], found["location"]["end_offset"], rule
