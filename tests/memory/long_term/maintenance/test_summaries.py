"""Summaries of sessions in three lines: written when a session is left or has grown, sent in the
next session.
"""

import asyncio
import itertools
from functools import partial

import pytest
from fakes.classifier import wait_until_quiet
from fakes.stored_sessions import old_session, records_of, session_id
from fakes.waiting import until

from ouro.assemble import Options, opener
from ouro.cli import main
from ouro.events import Notice
from ouro.llm import ScriptedModel, ScriptedReply
from ouro.memory.backend import SummaryRecord
from ouro.memory.index import Index, Sources, search_sessions
from ouro.memory.long_term.maintenance.summaries import (
    INSTRUCTIONS,
    find_open_task,
    make_excerpt,
    parse_summary,
)
from ouro.messages import ToolCall, assistant, user
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_index_path, get_sessions_dir

LINES = (
    "Asked: mend the import in api.py\nDone: it was mended\nOpen: the test of api.py still fails"
)
LONG_TALK = [
    each for n in range(4) for each in (user(f"please do step {n}"), assistant(f"Done {n}."))
]


class Model:
    """A scripted model; returns `summary` for a request for a summary."""

    def __init__(self, summary=LINES) -> None:
        self.asked: list[str] = []
        self._summary = summary

    def __call__(self, messages):
        if messages[0].text != INSTRUCTIONS:
            wants_tool = messages[-1].role == "user" and "look" in messages[-1].text
            return (
                ToolCall(f"c{len(messages)}", "read", {"path": "api.py"})
                if wants_tool
                else ScriptedReply("[]")
            )
        self.asked.append(messages[-1].text)
        return (
            self._summary
            if isinstance(self._summary, ScriptedReply)
            else ScriptedReply(self._summary)
        )


async def opened(repository, model, **options):
    scripted = ScriptedModel(itertools.repeat(model))
    options = {"interactive": True, "memory": False, **options}
    return await opener(Options(repository, ready_model=scripted, **options))(OpenRequest())


async def talk(session, *texts):
    for text in texts:
        _ = [event async for event in session.send(text)]
        await wait_until_quiet(session)


async def test_ended_sessions_are_summarized_after_the_first_turn(repository):
    old_session(repository, 1, 2, *LONG_TALK)
    old_session(repository, 2, 1, *LONG_TALK[:6])
    old_session(repository.parent, 3, 1, *LONG_TALK)
    model = Model()
    session = await opened(repository, model)
    await asyncio.sleep(0)
    assert model.asked == []
    await talk(session, "hello")
    (record,) = records_of(session_id(1), SummaryRecord)
    assert (record.summary, record.message) == (LINES, 8)
    assert "| User: please do step 0" in model.asked[0]
    assert (
        records_of(session_id(2), SummaryRecord) == records_of(session_id(3), SummaryRecord) == []
    )
    info = await session.session_catalog.store.get_session_stats(session_id(1))
    assert info.summary == LINES.replace("\n", " ")
    assert (await session.session_catalog.preview(info)).summary == LINES
    await session.close()

    again = await opened(repository, model)
    await talk(again, "hello again")
    assert len(model.asked) == 1
    await again.close()


def test_summary_is_searchable_and_shown_by_sessions_show(repository, home, capsys, monkeypatch):
    at = "2026-01-01T00:00:00.000Z"
    wanted = old_session(repository, 1, 2, *LONG_TALK, records=[SummaryRecord(LINES, at, 8)])
    old_session(repository, 2, 2, *LONG_TALK)
    index = Index(get_index_path())
    index.update(Sources(get_sessions_dir()))
    assert [
        (hit.session_id, hit.number) for hit in search_sessions(index, "IMPORT still_fails")
    ] == []
    assert [(hit.session_id, hit.number) for hit in search_sessions(index, "IMPORT fails")] == [
        (wanted, 0)
    ]
    index.close()
    monkeypatch.chdir(repository)
    assert main(["sessions", "show", wanted]) == 0
    assert f"summary:\n  {LINES.replace(chr(10), chr(10) + '  ')}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "last"), [("step", 20), ("look at step", 40)])
async def test_growing_session_is_summarized_every_ten_user_messages(repository, words, last):
    model = Model()
    session = await opened(repository, model)
    await talk(session, *(f"{words} {n}" for n in range(9)))
    assert model.asked == []
    await talk(session, f"{words} 9")
    assert (len(model.asked), session.memory.transcript.summary.message) == (1, last)
    await talk(session, "step 10")
    assert len(model.asked) == 1
    await session.close()
    assert [each.message for each in records_of(session.id, SummaryRecord)] == [last]


@pytest.mark.parametrize("answer", ["I would say it went well.", "", "Asked: –\nDone: –\nOpen: –"])
async def test_invalid_summary_is_neither_shown_nor_requested_again(repository, answer):
    old_session(repository, 1, 2, *LONG_TALK)
    model = Model(answer or "\u200b?")
    for _ in range(2):
        session = await opened(repository, model)
        await talk(session, "hello")
        await session.close()
    assert len(model.asked) == 1
    assert [each.summary for each in records_of(session_id(1), SummaryRecord)] == [""]


async def test_closing_does_not_wait_for_a_slow_model(repository):
    old_session(repository, 1, 2, *LONG_TALK)
    model = Model(ScriptedReply(LINES, hold=asyncio.Event().wait))
    session = await opened(repository, model)
    _ = [event async for event in session.send("hello")]
    await until(lambda: model.asked)
    await session.close()
    assert records_of(session_id(1), SummaryRecord) == []


async def test_open_task_is_a_notice_at_the_next_start_and_not_sent(repository):
    at = "2026-01-01T00:00:00.000Z"
    old_session(repository, 1, 2, *LONG_TALK, records=[SummaryRecord(LINES, at, 8)])
    session = await opened(repository, Model())
    session_news = session.events()
    assert await anext(session_news) == Notice(
        "Last time: the test of api.py still fails · /resume latest"
    )
    await talk(session, "hello")
    assert "still fails" not in str(session.memory.context())
    await session.close()


@pytest.mark.parametrize(
    "options", [{"interactive": False}, {"interactive": True, "ephemeral": True}]
)
async def test_no_summary_in_headless_or_ephemeral_sessions(repository, options):
    old_session(repository, 1, 2, *LONG_TALK)
    model = Model()
    session = await opened(repository, model, **options)
    await talk(session, *"abcdefghijk")
    assert model.asked == []
    await session.close()


async def test_setting_disables_summaries(repository, home):
    (home / ".ouro").mkdir(mode=0o700, exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text("sessions: {summaries: false}\n")
    old_session(repository, 1, 2, *LONG_TALK)
    model = Model()
    session = await opened(repository, model)
    await talk(session, "hello")
    assert model.asked == []
    await session.close()


def test_three_lines_are_parsed_from_answers_of_small_models():
    said = "Sure!\n**Asked:** mend it\n- Done: mended\n* **Open**: none\nHope that helps"
    assert parse_summary(said) == "Asked: mend it\nDone: mended\nOpen: –"
    assert (find_open_task(parse_summary(said)), find_open_task(LINES)) == (
        "",
        "the test of api.py still fails",
    )
    assert (
        parse_summary("Asked：修复\nDone：完成\nOpen：测试")
        == "Asked: 修复\nDone: 完成\nOpen: 测试"
    )
    assert (
        parse_summary(f"Asked: {'x' * 500}\nDone: y\x1b[2J")
        == f"Asked: {'x' * 159}…\nDone: y\nOpen: –"
    )


def test_of_a_long_talk_its_beginning_and_end_are_shown():
    from ouro.memory.long_term.capture.session_parts import Spoken

    spoken = [Spoken(n, "user", f"{n} {'x' * 1_400}") for n in range(60)]
    text = make_excerpt(spoken)
    assert text.startswith("User: 0 ")
    assert "[…]" in text
    assert f"User: {59} " in text
    assert len(text) < 26_000


async def first_request(repository, carry_over="summary", **options):
    """A new session after two turns, and what was sent with each of its messages."""
    model = ScriptedModel(["Hello.", "Hello again."])
    settings = {"sessions.carry_over": carry_over}
    chosen = Options(repository, ready_model=model, trust=True, settings=settings, **options)
    session = await opener(chosen)(OpenRequest())
    await talk(session, "hello", "hello")
    sent = [
        "\n".join(part.text for part in request.messages[-1].parts) for request in model.requests
    ]
    return session, sent


async def test_new_session_starts_with_the_last_summary_as_external_text(repository):
    old_session(repository, 1, 2, *LONG_TALK, records=[SummaryRecord(LINES, "", 8)])
    session, (first, second) = await first_request(repository)
    assert "| Open: the test of api.py still fails" in first
    assert "still fails" not in second
    found = session.session_memory.manager._make_provenance_finder(session.memory.context(), True)()
    assert found.sources == ("the summary of session 00000001",)
    await session.close()


@pytest.mark.parametrize("is_late", [False, True])
async def test_missing_summary_is_written_before_the_first_message(
    repository, monkeypatch, is_late
):
    old_session(repository, 1, 2, *LONG_TALK)
    old_session(repository, 2, 3, *LONG_TALK)
    model = Model(ScriptedReply(LINES, hold=partial(asyncio.sleep, 5)) if is_late else LINES)
    monkeypatch.setattr(
        "ouro.memory.long_term.maintenance.background.SUMMARY_TIMEOUT", 0.2 if is_late else 20
    )
    session = await opened(
        repository, model, memory=True, trust=True, settings={"sessions.carry_over": "summary"}
    )
    _ = [event async for event in session.send("hello")]
    first = "".join(part.text for part in session.memory.transcript.entries[0].message.parts)
    assert (f"| {LINES.splitlines()[0]}" in first) is not is_late
    await session.close()


@pytest.mark.parametrize("why", ["off", "private", "memory off", "no summary"])
async def test_no_summary_is_carried_over_that_the_user_kept_out_of_memory(repository, why):
    records = [] if why == "no summary" else [SummaryRecord(LINES, "", 8)]
    old_session(
        repository, 1, 2, *LONG_TALK, records=records, private=(3,) if why == "private" else ()
    )
    chosen = (
        {"carry_over": "off"} if why == "off" else {"memory": False} if why == "memory off" else {}
    )
    session, (first, _) = await first_request(repository, **chosen)
    assert "Asked" not in first
    await session.close()
