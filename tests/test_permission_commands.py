"""/permissions and `ouro permissions`: each rule with its source and its last use, added and
removed.
"""

import json
import re
from types import SimpleNamespace

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.ouro_program import OuroProgram

from ouro.agent.tool_runner import JudgedCall
from ouro.commands.slash import dispatch
from ouro.errors import NoModelError
from ouro.safety import Allow, Ask, Deny, Effect, Permissions, RuleStore, Workspace
from ouro.session.model_judge import Judge
from ouro.utils.ouro_paths import get_config_path, get_permissions_path


@pytest.fixture
def front_end(home, repository) -> FakeFrontEnd:
    get_config_path().parent.mkdir(exist_ok=True)
    get_config_path().write_text("permissions:\n  # mine\n  allow: [shell(make *), shell(tox *)]\n")
    front_end = FakeFrontEnd()
    saved = RuleStore(get_permissions_path(), repository)
    saved.add("shell(git push *)")
    permissions = Permissions(
        Workspace(repository),
        "ask",
        allow=("shell(make *)", "shell(tox *)", "shell(git push *)", "edit"),
        saved=saved,
    )
    front_end.session.__dict__ |= {"permissions": permissions, "cwd": repository}
    return front_end


def decide(front_end: FakeFrontEnd, line: str):
    return front_end.session.permissions.decide("shell", Effect.RUN, [line])


async def test_rules_are_listed_with_source_and_last_use(front_end):
    front_end.picks = [None]
    assert isinstance(decide(front_end, "git push origin hunter2-secret"), Allow)
    assert isinstance(decide(front_end, "git push --force"), Ask)
    await dispatch(front_end, "/permissions")
    (shown,) = front_end.shown
    rows = [row for row in shown.splitlines() if "allow" in row]
    assert "~/.ouro/config.yaml" in rows[0]
    assert "saved for this folder" in rows[2]
    assert re.search(r"allowed git push, \d\d:\d\d$", rows[2])
    assert "this session" in rows[3]
    assert (
        "hunter2"
        not in shown + get_permissions_path().with_name("permissions_used.jsonl").read_text()
    )


async def test_ask_without_a_rule_is_the_mode(front_end):
    await dispatch(front_end, "/permissions edit")
    assert front_end.session.status().mode == "edit"
    await dispatch(front_end, "/permissions ask")
    assert front_end.session.status().mode == "ask"
    await dispatch(front_end, "/permissions ask shell(git push *)")
    assert "Saved for this folder: ask shell(git push *)" in front_end.lines[-1][1]


async def test_a_rule_without_a_word_before_it_says_how_it_is_added(front_end):
    await dispatch(front_end, "/permissions shell(ls)")
    assert "For a rule: /permissions allow shell(ls)" in front_end.lines[-1][1].replace("`", "")
    await dispatch(front_end, "/permissions nothing")
    assert "For a rule" not in front_end.lines[-1][1]


async def test_a_rule_of_each_source_can_be_revoked(front_end):
    for rule in ("shell(make *)", "allow shell(git push *)", "edit"):
        await dispatch(front_end, f"/permissions revoke {rule}")
    assert front_end.session.permissions.rules == (("allow", "shell(tox *)"),)
    assert isinstance(decide(front_end, "make all"), Ask)
    text = get_config_path().read_text()
    assert ("shell(make *)" in text, "shell(tox *)" in text, "# mine" in text) == (
        False,
        True,
        True,
    )
    assert RuleStore(get_permissions_path(), front_end.session.cwd).load() == ()
    await dispatch(front_end, "/permissions revoke shell(nothing)")
    assert front_end.lines[-1][0] == "error"


async def test_rule_of_a_variable_shows_the_variable_and_is_not_saved(front_end, monkeypatch):
    monkeypatch.setenv("OURO_PERMISSIONS_ALLOW", "edit")
    await dispatch(front_end, "/permissions")
    row = next(row for row in front_end.shown[0].splitlines() if "`edit`" in row)
    assert "OURO_PERMISSIONS_ALLOW" in row.replace("\\", "")
    await dispatch(front_end, "/permissions revoke edit")
    assert front_end.lines[-1][0] == "error"
    assert "OURO_PERMISSIONS_ALLOW" in front_end.lines[-1][1]
    await dispatch(front_end, "/permissions revoke shell(make *)")
    assert "allow: [shell(tox *)]" in get_config_path().read_text()


async def test_settings_of_a_folder_that_is_not_trusted_are_not_read(front_end, repository):
    (repository / ".ouro").mkdir()
    (repository / ".ouro" / "config.yaml").write_text("broken: 1\n")
    await dispatch(front_end, "/permissions")
    assert "shell(make *)" in front_end.shown[0]


@pytest.mark.parametrize("argument", ["", " revoke"])
async def test_a_rule_is_picked_from_the_list(front_end, argument):
    front_end.picks = ["allow edit"] if argument else ["revoke", "allow edit"]
    await dispatch(front_end, f"/permissions{argument}")
    assert "allow edit" in [choice.value for choice in front_end.asked[-1][1]]
    assert ("allow", "edit") not in front_end.session.permissions.rules


@pytest.mark.parametrize("word", ["allow", "deny"])
async def test_missing_rule_argument_is_reported(front_end, word):
    await dispatch(front_end, f"/permissions {word}")
    assert (
        front_end.lines[-1][1]
        == f"/permissions {word} needs an argument: RULE.\nSee `/permissions {word} shell(make *)`."
    )


async def test_a_rule_applies_immediately_and_in_the_next_session(front_end):
    await dispatch(front_end, "/permissions deny shell(git push *)")
    await dispatch(front_end, "/permissions allow shell(npm test *)")
    assert isinstance(decide(front_end, "git push"), Deny)
    saved = RuleStore(get_permissions_path(), front_end.session.cwd)
    assert saved.load("deny") == ("shell(git push *)",)
    await dispatch(front_end, "/permissions deny write(x), Bash(rm *)")
    assert "`Bash` in the rule `Bash(rm *)` is not a tool of ouro" in str(front_end.lines[-1])
    assert saved.load("deny") == ("shell(git push *)",)
    assert saved.load() == ("shell(git push *)", "shell(npm test *)")


async def test_unknown_rule_error_suggests_permissions_list(front_end):
    await dispatch(front_end, "/permissions revoke shell(nothing)")
    (hint,) = re.findall("See `(.*)`", front_end.lines[-1][1])
    await dispatch(front_end, hint)
    assert (hint, "shell(tox *)" in front_end.shown[-1], front_end.asked) == (
        "/permissions list",
        True,
        [],
    )


async def test_mode_argument_sets_the_mode(front_end):
    front_end.picks.append("auto")
    await dispatch(front_end, "/permissions auto")
    assert front_end.session.status().mode == "auto"
    front_end.picks = ["edit"]
    await dispatch(front_end, "/permissions")
    assert front_end.session.status().mode == "edit"


def test_the_record_of_allowed_calls_stays_short(home, repository, monkeypatch):
    monkeypatch.setattr("ouro.safety.rules._MAX_USES", 2_000)
    store = RuleStore(get_permissions_path(), repository)
    get_permissions_path().parent.mkdir(exist_ok=True)
    for number in range(50):
        store.note_use("edit", f"file {number}")
    assert store.uses()["edit"].what == "file 49"
    assert len(get_permissions_path().with_name("permissions_used.jsonl").read_bytes()) < 2_000


def test_shell_commands_add_list_and_revoke_rules(model_server, repository):
    program = OuroProgram(model_server, repository)
    assert program.headless("permissions", "deny", "shell(npm publish *)").code == 0
    (rule,) = json.loads(program.headless("permissions", "list", "--json").out)
    assert (rule["kind"], rule["rule"], rule["source"]) == ("deny", "shell(npm publish *)", "saved")
    assert program.headless("permissions", "revoke", "shell(npm publish *)").code == 0
    assert json.loads(program.headless("permissions", "list", "--json").out) == []


async def test_verdicts_of_the_judge_are_listed_and_one_can_be_revoked(front_end):
    def no_models():
        raise NoModelError("There is no model.")

    judge = Judge(
        "haiku",
        no_models,
        SimpleNamespace(messages=tuple, transcript=SimpleNamespace(kept_entries=())),
        front_end.session.permissions,
    )
    front_end.session.turn.commands.tools.judge = judge
    verdict = await judge.judge(JudgedCall("write", {"path": "a.py"}, "write a.py", "it changes"))
    assert (verdict.allows, verdict.reason) == (False, "no verdict: There is no model.")
    front_end.picks = ["revoke", "judge"]
    await dispatch(front_end, "/permissions")
    assert "Judge: haiku: 0 calls allowed, 1 asked" in front_end.shown[-1]
    assert "#1 · asked · `write a.py` · no verdict: There is no model." in front_end.shown[-1]
    assert judge.state == "haiku: off in this session"
    assert await judge.judge(JudgedCall("write", {"path": "a.py"}, "write a.py", "x")) is None


def test_a_judge_that_cannot_be_used_is_named_at_the_start(home, repository, model_server):
    model_server.script(["Done."])
    program = OuroProgram(model_server, repository, {"OURO_PERMISSIONS_JUDGE": "nobody/knows-it"})
    done = program.headless("-p", "hello")
    assert done.code == 0
    assert "`permissions.judge` (nobody/knows-it) cannot be used" in done.err
