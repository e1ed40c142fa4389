from fakes.fake_front_end import FakeFrontEnd
from msgspec.structs import replace

from ouro.agent.project_instructions import ProjectInstructions
from ouro.commands.slash import dispatch
from ouro.events import Compacted


async def run(*lines, picks=()):
    front_end = FakeFrontEnd(picks=picks)
    for line in lines:
        assert await dispatch(front_end, line)
    return front_end


async def test_compact_runs_as_a_turn_and_passes_on_its_focus():
    front_end = await run("/compact the API of the parser", "/compress")
    assert front_end.session.window.keeps == ["the API of the parser", ""]
    assert [type(event) for event in front_end.events].count(Compacted) == 2


async def test_compact_is_refused_during_a_turn():
    front_end = FakeFrontEnd()
    front_end.session.running = True
    await dispatch(front_end, "/compact")
    assert front_end.session.window.keeps == []
    assert "cannot run while the agent works" in front_end.lines[0][1]


async def test_compact_probe_shows_the_summary_for_review_and_editing():
    front_end = FakeFrontEnd(picks=["edit", "## Goal\nMine.", "use"])
    front_end.session.window.summary = "## Goal\nMend it."
    await dispatch(front_end, "/compact --probe the parser")
    assert front_end.session.window.keeps == ["--probe the parser"]
    assert front_end.session.window.summary == "## Goal\nMine."
    assert [shown.partition("\n\n")[2] for shown in front_end.shown] == [
        "## Goal\nMend it.",
        "## Goal\nMine.",
    ]


async def test_compact_discards_a_summary_that_the_user_does_not_want():
    front_end = FakeFrontEnd(picks=[None])
    front_end.session.window.summary = "## Goal\nMend it."
    await dispatch(front_end, "/compact")
    assert not any(isinstance(event, Compacted) for event in front_end.events)


async def test_context_lists_drops_restores_and_pins_items_by_number():
    front_end = await run("/context", "/context drop 1", "/context restore 2", "/context pin 3")
    listed = front_end.shown[1].splitlines()
    assert [" ".join(line.split()) for line in listed if line[3:4] == "."] == [
        "1. 5,000 output shell: 900 lines",
        "2. 9 dropped note Use tabs.",
        "3. 4 pinned you Never push.",
    ]
    assert front_end.session.window.changes == [(["call:c1"], False), (["5:mem_a"], True)]
    assert front_end.session.window.pins == [(1, False)]
    assert front_end.lines[0][1].startswith("Dropped: 6,000 → 1,000 tokens.")


async def test_context_says_with_its_size_what_is_cut_of_instructions(repository):
    (repository / "AGENTS.md").write_text("rule\n" * 10_000)
    front_end = FakeFrontEnd()
    found = ProjectInstructions(repository, lambda _path: True)
    found.project_texts()
    session = front_end.session
    session.extensions = replace(session.extensions, instructions=found)
    await dispatch(front_end, "/context")
    (warning,) = [text for level, text in front_end.lines if level == "warning"]
    assert "AGENTS.md has 49,999 characters: only the first 40,000 are sent" in warning
    assert "the other 9,999 are left out" in warning


async def test_context_refuses_an_invalid_number_or_action():
    front_end = await run(
        "/context drop 9",
        "/context drop",
        "/context burn 1",
        "/context restore 1",
        f"/context drop {'9' * 5_000}",
    )
    assert [text.partition(".")[0].partition("\n")[0] for _, text in front_end.lines] == [
        "`9` is not a number from 1 to 3",
        "Usage: /context [drop|restore|pin N]",
        "Usage: /context [drop|restore|pin N]",
        "That is sent already",
        f"`{'9' * 40}` is not a number from 1 to 3",
    ]


async def test_pin_accepts_a_number_or_last_and_unpins():
    front_end = await run("/pin 2", "/pin last", "/pin 1")
    assert front_end.session.window.pins == [(2, True), (5, True), (1, False)]
    assert [text for _, text in front_end.lines] == [
        "Message 2 is pinned: it stays word for word.",
        "Message 5 is pinned: it stays word for word.",
        "Message 1 is no longer pinned.",
    ]


async def test_pin_without_a_number_lists_messages_newest_first():
    front_end = await run("/pin", picks=["2"])
    [(_, choices, _)] = front_end.asked
    assert [(each.value, each.label, each.detail) for each in choices] == [
        ("5", "Go on.", "you"),
        ("2", "I will not.", "ouro"),
        ("1", "Never push.", "you · pinned"),
    ]
    assert front_end.session.window.pins == [(2, True)]


async def test_pin_reports_an_invalid_number():
    front_end = await run("/pin first", f"/pin {'9' * 5_000}", "/pin")
    assert "`first` is not a message number" in front_end.lines[0][1]
    assert "9…` is not a message number" in front_end.lines[1][1]
    assert front_end.session.window.pins == []


async def test_context_reports_no_compaction_and_that_auto_is_off():
    front_end = FakeFrontEnd()
    window = front_end.session.window
    window.given = replace(window.given, limit=0, outlook=None, largest="")
    await dispatch(front_end, "/context")
    assert "There is nothing to compact yet. Automatic compaction is off" in front_end.shown[0]


async def test_btw_shows_the_answer_during_a_turn_and_between_turns():
    front_end = await run("/btw", "/btw *which*?")
    front_end.session.running = True
    await dispatch(front_end, "/btw now?")
    assert front_end.shown == ["*which*? It is 42.", "**/btw now?**\n\nnow? It is 42."]
    assert [text.partition("\n")[0] for _, text in front_end.lines] == [
        "/btw needs an argument: question.",
        "Asked outside of the conversation. The answer follows, and the turn continues.",
    ]
