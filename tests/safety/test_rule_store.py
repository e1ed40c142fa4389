"""Rules that were added with the answer "always"."""

import stat
import threading

import pytest

from ouro.errors import ConfigError
from ouro.safety import RuleStore, rules


def test_rules_are_stored_per_project(home, tmp_path):
    path = home / ".ouro" / "permissions.yaml"
    RuleStore(path, tmp_path / "a").add("shell(make *)")
    RuleStore(path, tmp_path / "a").add("shell(make *)")
    RuleStore(path, tmp_path / "b").add("write(src/**)")
    assert RuleStore(path, tmp_path / "a").load() == ("shell(make *)",)
    assert RuleStore(path, tmp_path / "b").load() == ("write(src/**)",)
    assert RuleStore(path, tmp_path / "c").load() == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_sessions_do_not_lose_each_others_rules(home, tmp_path):
    path = home / ".ouro" / "permissions.yaml"

    def keep(name: str) -> None:
        for number in range(10):
            RuleStore(path, tmp_path).add(f"shell({name} {number})")

    threads = [threading.Thread(target=keep, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(RuleStore(path, tmp_path).load()) == 20


@pytest.mark.parametrize(
    "text", ["- x", "a: b", "a: [[b]]", "[", "a: &x [b]\nc: *x", "\x00", "HERE: [shell(]"]
)
def test_file_without_rules_is_refused_and_unchanged(home, tmp_path, text):
    path = home / ".ouro" / "permissions.yaml"
    path.parent.mkdir()
    path.write_text(text := text.replace("HERE", str(tmp_path)))
    with pytest.raises(ConfigError, match=r"permissions\.yaml"):
        RuleStore(path, tmp_path).add("shell(ls)")
    assert path.read_text() == text


def test_the_rules_of_all_kinds_are_read_once(home, tmp_path, monkeypatch):
    store = RuleStore(home / ".ouro" / "permissions.yaml", tmp_path)
    for kind in ("ask", "deny", "allow", "deny"):
        store.add(f"shell({kind} *)" if kind != "deny" else "shell(rm *)", kind)
    read = rules.read_yaml
    paths = []
    monkeypatch.setattr(rules, "read_yaml", lambda path: paths.append(path) or read(path))
    assert store.load_kinds() == {
        "allow": ("shell(allow *)",),
        "ask": ("shell(ask *)",),
        "deny": ("shell(rm *)",),
    }
    assert len(paths) == 1
