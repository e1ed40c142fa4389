"""Resumed sessions: the picker, the card, a session in use, full-text search, and the bytes that
are sent.
"""

import itertools
import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from fakes.ouro_program import ANTHROPIC

from benchmarks.generate_sessions import generate

F6 = "\x1b[17~"
LONG = ("a word and another " * 1_200).strip()


def agent_requests(ouro):
    """The agent's own requests as texts, without those for notes and summaries."""
    return [
        str(each.messages)
        for each in ouro.server.requests
        if "You are ouro" in str(each.messages[0])
    ]


def run_turns(ouro, *prompts):
    """A session with these prompts, one turn each."""
    lines = "".join(
        json.dumps({"type": "user", "text": prompt, "queue": True}) + "\n" for prompt in prompts
    )
    assert (
        ouro.headless("-p", "--input", "stream-json", "--output", "stream-json", given=lines).code
        == 0
    )


def test_session_picker_opens_first(ouro):
    generate(ouro.home / "sessions", 300, project=str(ouro.folder))
    ouro.headless("-p", "say: the sought one\nthe zebra crosses")
    terminal = ouro.start("--resume", size=(24, 80))
    terminal.until_shows("type to search", "this project · 100 · 1 headless hidden")
    assert b"opening the session" in terminal.raw, (
        "the first picture is drawn before anything is loaded"
    )
    terminal.send(F6)
    terminal.until_shows("this project · 101")
    count = len(agent_requests(ouro))
    terminal.send("zebra")
    terminal.until_shows("1 of 101", "the zebra crosses")
    terminal.send("\r")
    terminal.until_shows("❯ Ask", "the sought one", "test-model")
    assert len(agent_requests(ouro)) == count
    terminal.say("say: gone on")
    terminal.until_shows("  gone on")
    assert terminal.leave() == 0


def test_keys_that_are_typed_too_early_go_into_the_search(ouro):
    generate(ouro.home / "sessions", 50, project=str(ouro.folder))
    terminal = ouro.start("--resume", size=(24, 80))
    terminal.send("qqq")
    terminal.until_shows("❯ qqq", "0 of 17")
    terminal.send("\x1b")
    terminal.until_shows("test-model")


def test_session_is_deleted_and_restored_on_the_screen(ouro):
    run_turns(ouro, "say: one")
    terminal = ouro.start("--resume", size=(24, 80))
    terminal.until_shows("this project · 1")
    terminal.send("\x04")
    terminal.until_shows("Move to trash?")
    terminal.send("y")
    terminal.until_shows("In the trash. Ctrl+U")
    assert ouro.sessions() == []
    terminal.send("\x15")
    terminal.until_shows("Restored", "this project · 1")
    assert len(ouro.sessions()) == 1


def test_s4_a_session_in_use_can_be_read_or_copied_but_not_opened_twice(ouro):
    first = ouro.screen()
    first.say("say: mine")
    first.until_shows("  mine")
    refused = ouro.headless("-p", "say: too", "--resume", "latest")
    assert (refused.code, str(first.pid) in refused.err) == (1, True)
    second = ouro.start("--resume", "latest")
    second.until_shows(f"in use by process {first.pid}", "continue in a copy")
    second.press("\x1b[B", lambda: second.shows("❯ 2 continue in a copy"))
    second.press("\r", lambda: second.shows("test-model"))
    second.say("say: in the copy")
    second.until_shows("  in the copy")
    second.leave()
    assert sorted(each["messages"] for each in ouro.sessions()) == [2, 4]
    third = ouro.start("--plain", "--resume", ouro.sessions()[1]["id"])
    third.until_shows("in use by process", "1. open it read-only")
    third.send("1\r")
    third.until_shows("say: mine", "Opened read-only")
    third.send("say: not kept\r")
    third.until_shows("not kept")
    third.send("\x04")
    assert third.end() == 0
    assert sorted(each["messages"] for each in ouro.sessions()) == [2, 4]


def test_words_of_a_message_find_a_session_and_several_are_listed(ouro):
    run_turns(ouro, "say: one\nthe yellow zebra")
    ouro.headless("-p", "say: two\nthe green zebra")
    found = ouro.headless("-p", "say: again", "--resume", "yellow zebra", "--output", "json")
    assert found.code == 0
    several = ouro.headless("-p", "say: again", "--resume", "zebra")
    assert several.code == 2
    assert "Several sessions match:" in several.err
    nobody = ouro.headless("-p", "say: x", "--resume")
    assert (nobody.code, "no session can be picked" in nobody.err) == (2, True)
    picking = ouro.start("--resume", "zebra", size=(24, 80))
    picking.until_shows("these · 2")


def test_a_session_of_another_worktree_belongs_to_the_project(ouro, tmp_path):
    run_turns(ouro, "say: one")
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=ouro.folder, check=True)
    then = ouro.folder
    ouro.folder = tree
    continued = ouro.screen("--continue")
    continued.until_shows("say: one", f"{tree} now"[:30])
    ouro.folder = then


def test_a_long_session_shows_its_cost_and_continues_with_its_tail(ouro):
    run_turns(
        ouro, f"say: one\n{LONG}", f"say: two\n{LONG}", "say: three", "say: four", "say: five"
    )
    terminal = ouro.screen("--resume", "latest")
    terminal.until_shows("resumed:", "first call", "tail: last 3 turns")
    terminal.press("\t", lambda: terminal.shows("❯ tail"))
    terminal.send("\r")
    terminal.until_shows("4 earlier messages are not sent any more")
    terminal.say("say: six")
    terminal.until_shows("  six")
    last = agent_requests(ouro)[-1]
    assert (LONG in last, "say: three" in last, "say: six" in last) == (False, True, True)
    terminal.leave()
    assert ouro.sessions()[0]["messages"] == 12


def test_a_first_message_continues_with_the_whole_session(ouro):
    run_turns(ouro, f"say: one\n{LONG}", f"say: two\n{LONG}", "say: three", "say: four")
    terminal = ouro.start("--resume", "latest", "say: at once")
    terminal.until_shows("  at once")
    assert agent_requests(ouro)[-1].count(LONG) == 2
    terminal.leave()


def test_plain_prompt_offers_the_resume_choices(ouro):
    run_turns(
        ouro, f"say: one\n{LONG}", f"say: two\n{LONG}", "say: three", "say: four", "say: five"
    )
    terminal = ouro.start("--plain", "--continue")
    terminal.until_shows("first call", "1. full:", "2. tail:", "3. summary:")
    terminal.send("say: whole\r")
    terminal.until_shows("whole")
    terminal.until(lambda: "say: whole" in agent_requests(ouro)[-1])
    assert agent_requests(ouro)[-1].count(LONG) == 2
    terminal.send("\x04")
    terminal.end()
    again = ouro.start("--plain", "--continue")
    again.until_shows("2. tail:")
    again.send("2\r")
    again.until_shows("earlier messages are not sent any more")
    again.send("say: less\r")
    again.until(lambda: "say: less" in agent_requests(ouro)[-1])
    assert LONG not in agent_requests(ouro)[-1]


def test_the_plain_prompt_picks_by_number_and_by_words(ouro):
    run_turns(ouro, "say: one\nabout the zebra")
    ouro.headless("-p", "say: two\nabout the lion")
    terminal = ouro.start("--plain", "--resume")
    terminal.until_shows("Sessions, this project: 2", "session:")
    terminal.send("zebra\r")
    terminal.until_shows("with “zebra”: 1")
    terminal.send("1\r")
    terminal.until_shows("about the zebra", "test-model")


def test_headless_resumes_the_whole_session_and_stream_has_the_cost(ouro):
    run_turns(
        ouro, f"say: one\n{LONG}", f"say: two\n{LONG}", "say: three", "say: four", "say: five"
    )
    done = ouro.headless("-p", "say: on", "--continue", "--output", "stream-json")
    told = [line["text"] for line in done.lines if line["type"] == "said"]
    assert any(text.startswith("Resumed: ") for text in told)
    assert agent_requests(ouro)[-1].count(LONG) == 2
    ouro.headless("-p", "say: less", "--continue", "--part", "tail")
    assert LONG not in agent_requests(ouro)[-1]


def test_old_sessions_are_cleaned_only_on_request(ouro):
    generate(ouro.home / "sessions", 60)
    before = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    old = [each for each in ouro.sessions_of_all() if each["updated_at"] < before]
    assert ouro.headless("sessions", "clean").code == 2
    preview = ouro.headless("sessions", "clean", "--days", "2")
    assert len(ouro.sessions_of_all()) == 60, preview.out
    ouro.headless("sessions", "clean", "--days", "2", "--yes")
    assert len(ouro.sessions_of_all()) == 60 - len(old)


def test_flags_without_a_session_are_refused_before_anything_is_drawn(ouro):
    terminal = ouro.start("--part", "tail")
    assert terminal.end() == 2
    assert b"\x1b[?1049h" not in terminal.raw
    assert terminal.shows("--resume")


def sent_before(raw: bytes) -> bytes:
    """A request up to the end of its last message: the part that a provider can cache."""
    text = raw.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[: end - 1].encode()


def without_cache_marks(raw: bytes) -> bytes:
    """The request without Anthropic's cache marks, which move and are not part of the cached text."""
    return raw.replace(b',"cache_control":{"type":"ephemeral"}', b"")


@pytest.mark.parametrize("model", ["openai/test-model", ANTHROPIC])
def test_request_after_a_resume_starts_with_the_previous_bytes(ouro, model):
    (ouro.folder / "long.txt").write_text("a long line of output: é\n" * 1500)
    odd = "run: printf 'tabs\\t, blanks \\n\\n--- ... and \\302\\205'"
    ouro.headless("-m", model, "-p", f"read: long.txt\nread: api.py\n{odd}")
    ouro.headless("-m", model, "--resume", "latest", "-p", "say: Once more.")
    ouro.headless("-m", model, "--resume", "latest", "-p", "read: api.py")

    requests = [without_cache_marks(request.raw) for request in ouro.server.requests]
    assert len(requests) >= 5
    for before, after in itertools.pairwise(requests):
        prefix = sent_before(before)
        assert after[: len(prefix)] == prefix


def test_manually_edited_session_is_sent_as_edited(ouro):
    ouro.headless("-p", "say: The answer is 41.")
    [path] = (ouro.home / "sessions").glob("2*/session.yaml")
    by_hand = path.read_text().replace("is 41.", "is 42.")
    by_hand = by_hand.replace(
        "---\nmessage: 2\n", "---\nrole: user\ntext: added by hand\n...\n---\nmessage: 2\n"
    )
    path.write_text(by_hand)
    ouro.headless("--resume", "latest", "-p", "say: Yes.")

    sent = json.dumps(ouro.server.requests[-1].messages)
    assert (
        sent.index("say: The answer is 42.")
        < sent.index("added by hand")
        < sent.rindex("The answer is 42.")
    )
    assert "is 41." not in sent


def test_a_session_of_a_worktree_says_where_it_continues(ouro):
    """Else the agent would change files of the repository that the user kept apart."""
    flags = ("--mode", "auto", "--output", "json")
    prompt = ("-p", "run: echo hi > made.txt\nsay: done")
    first = json.loads(ouro.headless(*prompt, *flags, "--worktree", "idea").out)["session_id"]
    there = f"ouro --worktree idea --resume {first[:8]}"

    elsewhere = ouro.headless("-p", "say: two", "--resume", first)
    assert (elsewhere.code, elsewhere.out) == (0, "two\n")
    assert "This session worked in the worktree idea." in elsewhere.err
    assert f"`{there}` continues in the worktree." in elsewhere.err
    back = ouro.headless("-p", "run: cat made.txt\nsay: three", *there.split()[1:])
    assert back.code == 0
    assert "This session worked" not in back.err
    assert "hi" in ouro.server.requests[-1].results[-1]
