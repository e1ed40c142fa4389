"""E6: subagents in a whole session: in parallel, with limits, in the background, resumed, with
questions.
"""

from __future__ import annotations

import asyncio
import random
from itertools import repeat

import pytest
import yaml
from agent.test_laws import check_sendable
from fakes.files import git
from fakes.knowledge import write_as_user
from fakes.waiting import until
from properties import examples

from ouro.assemble import opener
from ouro.errors import LimitReached
from ouro.events import (
    Notice,
    PermissionAsked,
    Permit,
    SubagentProgress,
    ToolFinished,
    TurnFinished,
)
from ouro.llm import ModelSpec, Prices, ScriptedModel, ScriptedReply, call
from ouro.memory.long_term import OuroHome, TrueForget
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, ToolReply, Usage
from ouro.session import OpenRequest
from ouro.session_options import Options

SPEC = ModelSpec("scripted", prices=Prices(1, 1))
PRICED = Usage(input=1000, output=100, cost=0.01)


class Family:
    """A model that plays the session's agent and its subagents: each has its own script, selected
    by its task.
    """

    def __init__(self, parent, **children):
        self.scripts = {
            "": iter(parent),
            **{name: iter(script) for name, script in children.items()},
        }
        self.model = ScriptedModel(repeat(self.answer), spec=SPEC)

    def answer(self, messages):
        asked = "\n".join(message.text for message in messages if message.role == "user")
        name = next((name for name in self.scripts if name and f"#{name}" in asked), "")
        step = next(self.scripts[name])
        if isinstance(step, ScriptedReply):
            return step
        return (
            ScriptedReply(step, usage=PRICED)
            if isinstance(step, str)
            else ScriptedReply("", (step,), usage=PRICED)
        )

    def requests_of(self, name):
        texts = [
            (request, "".join(message.text for message in request.messages))
            for request in self.model.requests
        ]
        return [request for request, text in texts if f"#{name}" in text]


def start(task, **arguments):
    return call("subagent", task=f"the {task}", prompt=f"Look into #{task}.", **arguments)


async def opened(repository, family, **options):
    settings = {"sessions.titles": False, **options.pop("settings", {})}
    made = Options(
        repository, ready_model=family.model, interactive=True, settings=settings, **options
    )
    return await opener(made)(OpenRequest())


async def play(session, text="go", on_event=lambda _event: None):
    seen = []
    async for event in session.send(text):
        seen.append(event)
        on_event(event)
    return seen


def contexts(request):
    return "\n".join(
        part.text for message in request.messages for part in message.parts_of(Context)
    )


def results(session):
    """The results of all calls, in the order of the calls."""
    messages = session.memory.messages()
    texts = {
        part.call_id: part.text for message in messages for part in message.parts_of(ToolReply)
    }
    return [texts[call.id] for message in messages for call in message.tool_calls]


async def test_three_subagents_run_in_parallel_and_their_cost_is_counted(repository):
    (repository / "a.py").write_text("x = 1\n")
    both = asyncio.Barrier(3)
    children = {
        name: [
            ScriptedReply("", (call("read", path="a.py"),), usage=PRICED, hold=both.wait),
            f"Found {name}.",
        ]
        for name in ("one", "two", "three")
    }
    starts = ScriptedReply(
        "", tuple(start(name, agent="explore") for name in children), usage=PRICED
    )
    family = Family([starts, "All found."], **children)
    session = await opened(repository, family)
    seen = await play(session)
    assert [text.partition(".")[0] for text in results(session)] == [
        "Found one",
        "Found two",
        "Found three",
    ]
    ended = [event for event in seen if isinstance(event, SubagentProgress) and event.is_over]
    assert {(event.id, event.state, event.calls) for event in ended} == {
        (f"explore-{number}", "done", 1) for number in (1, 2, 3)
    }
    assert [event.usage.cost for event in ended] == [pytest.approx(0.02)] * 3
    assert session.memory.usage.cost == pytest.approx(
        0.08
    )  # two calls of the parent, and two of each child
    assert isinstance(seen[-1], TurnFinished)
    tools = {tool.name for tool in family.requests_of("one")[0].tools}
    assert tools == {"read", "glob", "grep", "shell"}
    await session.close()


async def test_progress_reports_running_thinking_answering_and_done(repository):
    answer = ScriptedReply("A long answer. " * 20, thinking="Let me see. " * 20, usage=PRICED)
    family = Family([start("one"), "Found."], one=[answer])
    session = await opened(repository, family)
    seen = [event.state for event in await play(session) if isinstance(event, SubagentProgress)]
    assert seen == ["running", "thinking", "answering", "running", "done"]
    await session.close()


async def test_interrupting_one_subagent_leaves_the_others_running(repository):
    held = asyncio.Event()
    hangs = ScriptedReply(
        "I have begun. ", (call("read", path="a.py"),), usage=PRICED, hold=held.wait
    )
    starts = ScriptedReply("", (start("slow"), start("fast")))
    family = Family([starts, "One was ended."], slow=[hangs], fast=["Fast is done."])
    session = await opened(repository, family)
    killers = []

    def on_event(event):
        if isinstance(event, SubagentProgress) and event.id == "general-2" and event.is_over:
            killers.append(asyncio.ensure_future(session.background.subagents.kill("general-1")))

    seen = await play(session, on_event=on_event)
    slow, fast = results(session)
    assert slow.startswith("general-1 did not finish: ended by the user")
    assert fast.startswith("Fast is done.")
    assert seen[-1] == TurnFinished("answered")
    await asyncio.gather(*killers)
    await session.close()


async def test_e6_interrupting_the_turn_ends_all_subagents(repository):
    held = asyncio.Event()
    hangs = ScriptedReply("", (call("shell", command="echo never"),), usage=PRICED, hold=held.wait)
    family = Family([start("slow"), "Resumed."], slow=[hangs, "What I know."])
    session = await opened(repository, family)

    def on_event(event):
        if isinstance(event, SubagentProgress):
            asyncio.get_running_loop().call_soon(session.interrupt)

    seen = await play(session, on_event=on_event)
    assert seen[-1].outcome == "interrupted"
    assert not session.background.subagents.has_running
    assert results(session) == ["Interrupted by the user before it finished."]
    await session.close()


async def test_e6_turn_and_cost_limits_stop_a_subagent_with_a_reason(repository):
    loops = repeat(ScriptedReply("", (call("todo", todos=[]),)))  # a call without a price
    family = Family(
        [start("loop"), start("dear"), "Both stopped."],
        loop=loops,
        dear=repeat(call("todo", todos=[])),
    )
    settings = {"subagents.max_turns": 3, "subagents.max_cost": 0.02}
    session = await opened(repository, family, settings=settings)
    await play(session)
    loop, dear = results(session)
    assert loop.startswith("general-1 did not finish: Stopped after 3 model calls.")
    assert dear.startswith("general-2 did not finish: Stopped: it has cost $0.02 of $0.02.")
    await session.close()


async def test_e6_cost_limit_of_the_session_applies_to_subagents(repository):
    family = Family([start("loop"), "Never said."], loop=repeat(call("todo", todos=[])))
    session = await opened(repository, family, settings={"limits.max_cost": 0.03})
    seen = await play(session)
    assert (
        "general-1 did not finish: Stopped: this session has cost $0.03 of $0.03"
        in results(session)[0]
    )
    assert seen[-1].outcome == "limit"
    await session.close()


async def test_e6_the_answer_of_one_counts_where_the_budget_ended_meanwhile(repository):
    def refuse():
        raise LimitReached("The budget of today is spent.")

    async def spend():
        session.model_source._check_budget = refuse

    late = ScriptedReply("Found it.", usage=PRICED, hold=spend)
    family = Family([start("late", agent="explore"), "Done."], late=[late])
    session = await opened(repository, family)
    await play(session)
    assert results(session)[0].startswith("Found it.")
    assert [child.state for child in session.background.subagents.list_progress()] == ["done"]
    assert session.memory.usage.cost == pytest.approx(
        0.03
    )  # the parent's two calls, and that of the child
    await session.close()


async def test_timeout_does_not_count_while_the_user_is_asked(repository):
    family = Family([start("slow"), "Late."], slow=[ScriptedReply("", hold=asyncio.Event().wait)])
    session = await opened(repository, family, settings={"subagents.max_seconds": 1})
    session.background.subagents._settings = type(session.background.subagents._settings)(
        max_seconds=0.05
    )
    await play(session)
    assert "Stopped after 0.05 s (subagents.max_seconds)" in results(session)[0]
    await session.close()


async def test_e6_question_names_the_subagent_and_mode_is_never_wider(repository):
    writes = [call("write", path="new.txt", content="x"), "Written."]
    family = Family(
        [start("writer"), "Done.", start("again"), "Refused."], writer=writes, again=writes
    )
    session = await opened(repository, family)
    asked = []

    def on_event(event):
        if isinstance(event, PermissionAsked):
            asked.append(event.title)
            session.answer(event.question_id, Permit("yes"))

    await play(session, on_event=on_event)
    assert asked == ["general-1: write new.txt"]
    assert (repository / "new.txt").read_text() == "x"
    session.set_mode("plan")
    (repository / "new.txt").unlink()
    await play(session, on_event=on_event)
    assert len(asked) == 1
    assert not (repository / "new.txt").exists()
    await session.close()


async def test_e6_mode_change_applies_to_a_running_subagent(repository):
    family = Family(
        [start("writer"), "Done."],
        writer=[call("todo", todos=[]), call("write", path="n", content="x"), "."],
    )
    session = await opened(repository, family, settings={"permissions.mode": "auto"})

    def on_event(event):
        if isinstance(event, SubagentProgress) and event.calls == 1:
            session.set_mode("plan")

    await play(session, on_event=on_event)
    assert not (repository / "n").exists()
    await session.close()


async def test_e6_a_subagent_cannot_start_another(repository):
    family = Family([start("nests"), "Done."], nests=[start("deeper"), "It was refused."])
    session = await opened(repository, family)
    await play(session)
    assert "It was refused." in results(session)[0]
    assert "subagent" not in {tool.name for tool in family.requests_of("nests")[0].tools}
    await session.close()


async def test_background_subagent_reports_with_the_next_message(repository):
    gate = asyncio.Event()
    family = Family(
        [start("later", background=True), "Started.", "Thanks."],
        later=[ScriptedReply("The answer is 42.", usage=PRICED, hold=gate.wait)],
    )
    session = await opened(repository, family)
    background = session.events()
    await play(session)
    assert not session.background.subagents.list_progress()[0].is_over
    gate.set()
    said = [event async for event in _until_said(background)]
    assert "general-1 is done" in said[-1].text
    await play(session, "and now?")
    contexts = [part.text for part in session.memory.messages()[-2].parts_of(Context)]
    assert any("The answer is 42." in text for text in contexts)
    assert session.background.subagents.take_reports() == []
    await session.close()


async def _until_said(events):
    async for event in events:
        yield event
        if isinstance(event, Notice):
            return


async def test_reports_enter_a_turn_one_by_one(repository):
    """An interrupt while one is saved must not lose the next."""
    family = Family(
        [start("one", background=True), start("two", background=True), "Started."],
        one=["Done one."],
        two=["Done two."],
    )
    session = await opened(repository, family, settings={"session.wake": "off"})
    await play(session)
    await until(lambda: len(session.wake.reasons()) == 2)
    [report] = session.turn.agent.steering()
    assert ("Done one." in report.context) != ("Done two." in report.context)
    assert len(session.wake.reasons()) == 1
    await session.close()


async def test_closing_the_session_ends_background_subagents(repository):
    family = Family(
        [start("ever", background=True), "Ok."],
        ever=[ScriptedReply("x", hold=asyncio.Event().wait)],
    )
    session = await opened(repository, family)
    await play(session)
    await session.close()
    assert not session.background.subagents.has_running


async def test_resumed_subagent_keeps_its_transcript_across_processes(repository):
    family = Family([start("deep"), "Ok."], deep=["The parser is in parse.py."])
    session = await opened(repository, family)
    await play(session)
    await session.close()
    family = Family(
        [call("subagent", task="more", prompt="And its tests?", resume="general-1"), "Ok."],
        deep=["In test_parse.py."],
    )
    again = await opener(Options(repository, ready_model=family.model))(OpenRequest("latest"))
    await play(again)
    assert "In test_parse.py." in results(again)[-1]
    texts = [message.text for message in family.requests_of("deep")[0].messages]
    assert texts[-3:] == ["Look into #deep.", "The parser is in parse.py.", "And its tests?"]
    titles = [info.title for info in (await again.background.subagents.list_transcripts()).values()]
    assert titles == ["general-1: the deep"]
    await again.close()


async def test_crashed_subagent_is_a_result_and_the_session_continues(repository):
    def breaks(_messages):
        raise ZeroDivisionError("a defect")

    family = Family([start("broken"), "I see."])
    answer = family.answer
    family.scripts["broken"] = iter(())
    family.model = ScriptedModel(
        repeat(
            lambda messages: breaks(messages) if "#broken" in messages[1].text else answer(messages)
        ),
        spec=SPEC,
    )
    session = await opened(repository, family)
    seen = await play(session)
    assert "ouro failed: ZeroDivisionError: a defect" in results(session)[0]
    assert seen[-1] == TurnFinished("answered")
    await session.close()


async def test_worktree_with_changes_returns_a_branch_else_it_is_removed(repository):
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    family = Family(
        [start("change", worktree=True), start("look", worktree=True), "Done."],
        change=[call("write", path="new.txt", content="from the branch\n"), "Written."],
        look=["Nothing to do."],
    )
    session = await opened(repository, family, settings={"permissions.mode": "edit"})
    await play(session)
    changed, unchanged = results(session)
    branch = git(repository, "branch", "--list", "ouro/*", "--format=%(refname:short)")
    assert f"branch `{branch}` (1 file)" in changed
    assert "+from the branch" in changed
    assert git(repository, "show", f"{branch}:new.txt") == "from the branch"
    assert not (repository / "new.txt").exists()
    assert "no branch" in unchanged
    assert git(repository, "worktree", "list").count("\n") == 0
    await session.close()


async def test_a_subagent_whose_worktree_is_broken_can_be_resumed(repository):
    """What fails at its end must not keep its transcript open."""
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    family = Family(
        [start("look", worktree=True), "Oh.", start("more", resume="general-1"), "I see."],
        look=[call("shell", command="git worktree lock ."), "Locked.", "Continued."],
    )
    settings = {"permissions.mode": "auto", "sandbox.enabled": False}
    session = await opened(repository, family, settings=settings)
    await play(session)
    await play(session)
    broken, resumed = results(session)
    assert "git could not commit them" in broken
    assert "Continued." in resumed
    await session.close()


async def test_a_worktree_is_removed_if_its_subagent_cannot_be_resumed(repository):
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    family = Family(
        [start("look"), "Done.", start("more", resume="general-1", worktree=True), "I see."],
        look=["Nothing to do."],
    )
    session = await opened(repository, family)
    subagents = session.background.subagents
    await play(session)
    info = await subagents.transcript_of("general-1")
    held = await MemoryManager.resume(subagents.store, info.id, project=str(repository))

    await play(session)

    *_, refused = results(session)
    assert "open" in refused
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "branch", "--list", "ouro/*") == ""
    await held.close()
    await session.close()


async def test_subagent_gets_the_core_and_only_notes_relevant_to_its_task(repository):
    other = await opened(repository, Family([]))
    texts = ("Sourdough loaves rise for fourteen hours.", "Green tea is served at noon.")
    notes = [
        Note(id=f"mem_0000000{number}", scope="user", text=text)
        for number, text in enumerate(texts, 1)
    ]
    files = {"preferences.md": "- Answer in German.\n"} | {
        note.file_name: note_text(note) for note in notes
    }
    await write_as_user(other.session_memory.manager, "user", files, "Baking", origin="person")
    await other.close()
    task = call(
        "subagent",
        task="bread",
        prompt="#bread: how long do sourdough loaves rise?",
        agent="explore",
    )
    family = Family([task, "Done."], bread=["Long."])
    session = await opened(repository, family, trust=True)
    await play(session)
    [request] = family.requests_of("bread")
    assert "Answer in German." in request.messages[0].text
    sent = contexts(request)
    assert ("rise for fourteen hours" in sent, "Green tea" in sent) == (True, False)
    await session.close()


async def test_subagent_cannot_write_memory(repository, home):
    memory = home / ".ouro" / "memory"
    family = Family(
        [start("writer"), "Done."],
        writer=[call("write", path=str(memory / "facts.md"), content="- A lie.\n"), "Refused."],
    )
    session = await opened(repository, family, settings={"permissions.mode": "auto"})
    await play(session)
    assert not (memory / "facts.md").exists()
    await session.close()


async def test_subagent_gets_skills_with_the_tool_or_named_by_its_kind(repository, home):
    for name in ("release", "style"):
        folder = home / ".ouro" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\ndescription: How to {name}.\n---\nThe text of {name}.\n"
        )
    agents = home / ".ouro" / "agents"
    agents.mkdir()
    (agents / "stylist.md").write_text(
        "---\ndescription: Styles.\ntools: Read\nskills: style\n---\nStyle it.\n"
    )
    family = Family(
        [ScriptedReply("", (start("all"), start("named", agent="stylist"))), "Done."],
        all=[call("skill", name="release"), "Released."],
        named=["Styled."],
    )
    session = await opened(repository, family)
    await play(session)
    first, second = family.requests_of("all")
    assert "- release: How to release." in first.messages[0].text
    assert "The text of release." in str(second.messages)
    [styled] = family.requests_of("named")
    assert "The text of style." in styled.messages[0].text
    assert ("- release" in styled.messages[0].text, [tool.name for tool in styled.tools]) == (
        False,
        ["read"],
    )
    await session.close()


async def test_forget_everywhere_removes_text_from_subagent_transcripts(repository, home):
    family = Family([start("leak"), "Done."], leak=["The word is blackbird-77."])
    session = await opened(repository, family)
    await play(session)
    await session.close()
    root = home / ".ouro"
    place = OuroHome(root, root / "history.git", root / "sessions", root / "cache" / "index.db")
    assert TrueForget("blackbird-77", place).forget().left == []
    texts = [
        path.read_text(errors="replace")
        for path in (root / "sessions").rglob("*")
        if path.is_file()
    ]
    assert len(texts) > 3
    assert not any("blackbird-77" in text for text in texts)


@pytest.mark.parametrize("seed", range(examples(12)))
async def test_subagent_transcripts_stay_valid_however_they_end(seed, repository):
    """The first law for subagents that are killed or interrupted at any moment."""
    chance = random.Random(seed)
    calls = [
        call("glob", pattern="*"),
        call("read", path="none"),
        call("nothing"),
        call("write", path="n", content="x"),
    ]
    script = lambda: [  # noqa: E731
        ScriptedReply("Hm.", tuple(chance.choices(calls, k=chance.randint(1, 3)))) for _ in range(4)
    ]
    starts = ScriptedReply("", tuple(start(name) for name in ("one", "two")))
    family = Family([starts, "Done.", "Done."], one=[*script(), "One."], two=[*script(), "Two."])
    session = await opened(repository, family)
    subagents, end, seen = session.background.subagents, chance.randint(3, 40), []
    kills = []
    async for event in session.send("go"):
        seen.append(event)
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit(chance.choice(["yes", "no"])))
        if len(seen) == end and chance.random() < 0.5:
            session.interrupt()
        elif len(seen) == end:
            running = [child.id for child in subagents.list_progress() if not child.is_over]
            kills += [asyncio.ensure_future(subagents.kill(child_id)) for child_id in running[:1]]
    await asyncio.gather(*kills, return_exceptions=True)
    assert sum(isinstance(event, TurnFinished) for event in seen) == 1
    assert isinstance(seen[-1], TurnFinished)
    check_sendable(session.memory.context())
    for info in (await subagents.list_transcripts()).values():
        child = await MemoryManager.resume(subagents.store, info.id, project=str(repository))
        check_sendable(child.context())
        await child.close()
    await session.close()


async def test_invalid_start_arguments_return_errors(tmp_path):
    family = Family(
        [
            ScriptedReply(
                "",
                (
                    start("x", agent="nobody"),
                    start("y", resume="explore-9"),
                    start("z", worktree=True),
                ),
            ),
            "I see.",
        ]
    )
    session = await opened(tmp_path, family)
    seen = await play(session)
    nobody, nine, no_git = results(session)
    assert "A worktree needs a git repository with a commit" in no_git
    assert nobody == "There is no agent `nobody`. There are: explore, general, plan, review."
    assert nine.startswith("There is no subagent `explore-9`")
    assert all(event.failed for event in seen if isinstance(event, ToolFinished))
    await session.close()


CHECK = "Is #checked true?"


def _check_at_the_end(home, agent):
    hook = {"event": "turn-end", "prompt": CHECK, "agent": agent}
    before = {"event": "before-tool", "prompt": CHECK, "agent": agent, "matcher": "read"}
    home.joinpath(".ouro").mkdir(exist_ok=True)
    home.joinpath(".ouro", "config.yaml").write_text(yaml.safe_dump({"hooks": [hook, before]}))


async def test_the_agent_of_a_hook_looks_with_its_tools(home, repository):
    _check_at_the_end(home, "explore")
    (repository / "todo.txt").write_text("open: the tests\n")
    verdict = '{"ok": false, "reason": "todo.txt names the tests"}'
    looks = [call("read", path="todo.txt"), verdict, '{"ok": true}']
    family = Family(["All is done.", "Now it is."], checked=looks)
    session = await opened(repository, family)
    await play(session)
    # Its own call of `read` causes no further check: the agent of the hook would start another.
    assert len(family.requests_of("checked")) == 3
    assert "todo.txt names the tests" in contexts(family.model.requests[-2])
    await session.close()


async def test_e11_the_agent_of_a_hook_only_reads(home, repository):
    _check_at_the_end(home, "general")
    family = Family(["All is done."], checked=[])
    session = await opened(repository, family)
    await play(session)
    assert "may change files" in session.extensions.hooks.runs[-1].failure
    await session.close()
