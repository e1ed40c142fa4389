"""`@` in a message: files, parts, folders, notes and sessions reach the model with it."""

from __future__ import annotations

import unicodedata

import pytest
from fakes.agents import say

from ouro.agent.mentions import Mention, find_mentions
from ouro.assemble import Options, open_session
from ouro.events import Notice, ToolFinished
from ouro.llm import ScriptedModel, call
from ouro.messages import Context
from ouro.session import OpenRequest

pytestmark = pytest.mark.usefixtures("no_titles")


async def ask(repository, text, *script, **options):
    """Send a message; returns what the model read as context, the notices and the tool results."""
    model = ScriptedModel([*script, *["Done."] * 4])
    options = Options(repository, ready_model=model, memory=False, **options)
    session = await open_session(options, OpenRequest())
    notices, tools = [], []
    async for event in session.send(text):
        if isinstance(event, Notice):
            notices.append(event.text)
        elif isinstance(event, ToolFinished):
            tools.append((event.name, event.failed))
    await session.close()
    sent = [
        part.text for message in model.requests[0].messages for part in message.parts_of(Context)
    ]
    return "\n".join(sent), " ".join(notices), tools


def lines(count):
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see @api.py", [Mention("api.py")]),
        ("see @api.py, and @b.py.", [Mention("api.py"), Mention("b.py")]),
        ("@api.py:10-40 or @api.py#L5", [Mention("api.py", 10, 40), Mention("api.py", 5, 5)]),
        ("@api.py#L10-L12", [Mention("api.py", 10, 12)]),
        ('@"a b.py":2-3!', [Mention("a b.py", 2, 3)]),
        ("(@src/)", [Mention("src/")]),
        ("@app/[id]/page.tsx", [Mention("app/[id]/page.tsx")]),
        ("@Grüße.md und @日本.txt:3", [Mention("Grüße.md"), Mention("日本.txt", 3, 3)]),
        ("mail me@example.org", []),
        ("@note:mem_1 @session:abc", [Mention("note:mem_1"), Mention("session:abc")]),
        ("@odd:7", [Mention("odd:7")]),
    ],
)
def test_mentions_are_found(text, found):
    files = {"app/[id]/page.tsx", "odd:7", "src/"}
    assert find_mentions(text, lambda name: name in files) == found


async def test_an_attached_file_is_numbered_and_counts_as_read(repository):
    (repository / "api.py").write_text("old = 1\n")
    edit = call("write", path="api.py", content="new = 2\n")
    context, notices, tools = await ask(
        repository, "rename it in @api.py", edit, settings={"permissions.mode": "edit"}
    )
    assert '<attached name="api.py">\n1\told = 1' in context
    assert (tools, (repository / "api.py").read_text()) == ([("write", False)], "new = 2\n")
    assert "Attached: api.py (1 line)." in notices


@pytest.mark.parametrize(("on_disk", "typed"), [("NFD", "NFC"), ("NFC", "NFD")])
async def test_a_name_with_accents_is_found_in_either_form(repository, on_disk, typed):
    (repository / unicodedata.normalize(on_disk, "café.txt")).write_text("the menu\n")
    name = unicodedata.normalize(typed, "café.txt")
    context, notices, _ = await ask(repository, f"read @{name}, please")
    assert "1\tthe menu" in context
    assert "There is no file" not in notices


async def test_a_range_a_folder_and_a_long_file_are_cut_as_named(repository):
    (repository / "long.txt").write_text(lines(5000))
    (repository / "src").mkdir()
    (repository / "src" / "a.py").write_text("a\n")
    context, notices, _ = await ask(repository, "@long.txt:10-12 @src/ @long.txt")
    assert "10\tline 10\n11\tline 11\n12\tline 12\n[Lines 10-12 of 5000" in context
    assert '<attached name="src/">\na.py\n</attached>' in context
    assert "long.txt (2,000 lines, cut)" in notices or "long.txt (2000 lines, cut)" in notices


async def test_keys_ignored_binary_and_denied_files_are_refused_and_named(repository):
    for name in (".env", "server.pem", "secret.txt", "built.log"):
        (repository / name).write_text("hunter2\n")
    (repository / "data.bin").write_bytes(b"\x7fELF\x02\xff\x00\x9d" * 50)
    (repository / ".gitignore").write_text("*.log\n")
    context, notices, _ = await ask(
        repository,
        "@.env @server.pem @secret.txt @built.log @data.bin @nothing.py",
        settings={"permissions.deny": ["read(secret.txt)"]},
    )
    assert "hunter2" not in context
    for expected in (
        ".env (may hold keys)",
        "server.pem (may hold keys)",
        "secret.txt (a rule denies it)",
        "built.log (ignored by git)",
        "data.bin (binary)",
        "There is no file nothing.py",
    ):
        assert expected in notices


async def test_a_file_outside_the_workspace_is_attached_because_the_user_names_it(
    repository, tmp_path
):
    (tmp_path / "notes.txt").write_text("buy tea\n")
    context, _, _ = await ask(repository, f"see @{tmp_path}/notes.txt")
    assert "1\tbuy tea" in context


async def test_preview_says_the_same_before_sending(repository):
    (repository / "api.py").write_text(lines(3))
    (repository / ".env").write_text("x\n")
    model = ScriptedModel(["Done."])
    session = await open_session(
        Options(repository, ready_model=model, memory=False), OpenRequest()
    )
    shown = [
        str(item) for item in await session.attachments_of("@api.py @.env @api.py:1-2 @app.get")
    ]
    await session.close()
    assert shown == ["api.py (21 B)", ".env (may hold keys)", "api.py:1-2 (2 lines)"]


@pytest.mark.parametrize("content", [b"\x00", b"\xff\x02", b"\x00\x00\x00"])
async def test_preview_refuses_a_binary_file_of_few_bytes_as_sending_does(repository, content):
    (repository / "tiny.bin").write_bytes(content)
    session = await open_session(
        Options(repository, ready_model=ScriptedModel(["Done."]), memory=False), OpenRequest()
    )
    shown = [str(item) for item in await session.attachments_of("@tiny.bin")]
    await session.close()
    assert shown == ["tiny.bin (binary)"]
    _, notices, _ = await ask(repository, "read @tiny.bin")
    assert "Not attached: tiny.bin (binary)." in notices


async def test_preview_says_that_a_note_or_a_session_is_unknown_or_how_long_it_is(repository):
    model = ScriptedModel(["The parser is slow.", "Done."])
    options = Options(repository, ready_model=model, memory=False)
    session = await open_session(options, OpenRequest())
    await say(session, "why is it slow?")
    text = f"@session:{session.id[:8]} @session:nosuch @note:mem_000000"
    found, session_gone, note_gone = await session.attachments_of(text)
    await session.close()
    assert found.size.endswith("characters")
    assert not found.problem
    assert "nosuch" in session_gone.problem
    assert note_gone.problem == "memory is off"


def test_an_id_of_digits_is_no_line_of_a_file():
    """One session in forty has such an id, as far as it is typed."""
    found = find_mentions("@session:01108701, @note:123 and @api.py:3", lambda _name: False)
    assert [(each.kind, each.name, each.first) for each in found] == [
        ("session", "session:01108701", 0),
        ("note", "note:123", 0),
        ("file", "api.py", 3),
    ]


async def test_a_session_is_attached_by_its_id(repository):
    model = ScriptedModel(["The parser is slow because of the lexer.", *["Done."] * 4])
    options = Options(repository, ready_model=model, memory=False)
    first = await open_session(options, OpenRequest())
    async for _event in first.send("why is the parser slow?"):
        pass
    await first.close()
    context, notices, _ = await ask(repository, f"continue @session:{first.id}")
    assert "because of the lexer" in context
    assert f"Attached: session:{first.id}" in notices
    context, notices, _ = await ask(repository, "continue @session:zzzz")
    assert "Not attached: session:zzzz" in notices
