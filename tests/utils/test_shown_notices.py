"""Notices that are shown once."""

from __future__ import annotations

from ouro.utils.ouro_paths import get_home
from ouro.utils.shown_notices import new_notices


def test_a_notice_is_new_until_a_user_has_seen_it(home):
    assert new_notices(["one"], is_seen=False) == ["one"]
    assert new_notices(["one", "two"], is_seen=True) == ["one", "two"]
    assert new_notices(["one", "three"], is_seen=True) == ["three"]
    assert new_notices([], is_seen=True) == []


def test_a_damaged_record_shows_the_notice_again(home):
    new_notices(["one"], is_seen=True)
    record = get_home() / "cache" / "shown_notices.json"
    record.write_bytes(b"{")
    assert new_notices(["one"], is_seen=True) == ["one"]
    assert new_notices(["one"], is_seen=True) == []
