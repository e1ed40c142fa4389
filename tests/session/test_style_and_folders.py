"""Output styles, further instructions, further folders and safe mode in a session."""

import pytest
from fakes.agents import notices_of, say
from fakes.fake_front_end import FakeFrontEnd
from fakes.files import write

from ouro.assemble import Options, opener
from ouro.commands.slash import dispatch
from ouro.errors import UsageError
from ouro.llm import ScriptedModel, call
from ouro.messages import Context
from ouro.session import OpenRequest
from ouro.settings_sources import load_settings

pytestmark = pytest.mark.usefixtures("no_background_calls")


async def opened(repository, *script, trust="yes", **options):
    model = ScriptedModel(script or ["Done."] * 9)
    session = await opener(Options(repository, ready_model=model, **options))(
        OpenRequest(trust=trust)
    )
    return session, model


def context_of(model):
    """The context of the last message that was sent."""
    parts = [part.text for part in model.requests[-1].messages[-1].parts_of(Context)]
    return "\n".join(parts)


def system_of(model):
    return "\n".join(part.text for part in model.requests[-1].messages[0].parts)


async def test_a_style_is_sent_once_and_its_end_too(home, repository):
    session, model = await opened(repository)
    await say(session, "one")
    assert "Output style" not in context_of(model)
    before = system_of(model)
    front_end = FakeFrontEnd(session)
    await dispatch(front_end, "/style Concise")
    await say(session, "two")
    assert "Output style: concise." in context_of(model)
    assert "few words" in context_of(model)
    await say(session, "three")
    assert "Output style" not in context_of(model)
    await dispatch(front_end, "/style default")
    await say(session, "four")
    assert "Output style: none" in context_of(model)
    assert system_of(model) == before
    await session.close()


async def test_a_style_of_the_project_needs_trust_and_a_users_file_replaces_a_built_in_one(
    home, repository
):
    write(repository / ".claude/output-styles/pirate.md", "---\ndescription: Arr\n---\nSay arr.\n")
    write(home / ".ouro/output-styles/concise.md", "---\ndescription: mine\n---\nOne word.\n")
    session, model = await opened(repository, trust="no")
    with pytest.raises(UsageError, match="There is no output style `pirate`"):
        session.extensions.styles.use("pirate")
    await session.close()
    session, model = await opened(repository, trust="yes", settings={"style": "concise"})
    await say(session, "one")
    assert "One word." in context_of(model)
    session.extensions.styles.use("pirate")
    await say(session, "two")
    assert "Say arr." in context_of(model)
    await session.close()


async def test_a_saved_style_is_that_of_new_sessions(home, repository):
    session, _model = await opened(repository)
    await dispatch(FakeFrontEnd(session, picks=["learning"]), "/style")
    assert session.extensions.styles.current.name == "learning"
    assert load_settings().style == ""
    await dispatch(FakeFrontEnd(session), "/style --save")
    assert load_settings().style == "learning"
    await dispatch(FakeFrontEnd(session), "/style default --save")
    assert load_settings().style == ""
    await session.close()


async def test_an_unknown_style_in_the_settings_is_named_and_the_session_opens(home, repository):
    session, _model = await opened(repository, settings={"style": "poet"})
    front_end = FakeFrontEnd(session)
    await dispatch(front_end, "/style poet")
    assert "There is no output style `poet`" in front_end.lines[-1][1]
    assert any("poet" in text for text in notices_of(session))
    await session.close()


async def test_further_instructions_are_last_in_the_system_prompt(home, repository):
    write(repository / "AGENTS.md", "Use tabs.\n")
    session, model = await opened(repository, more_instructions="Answer in Welsh.")
    await say(session, "one")
    prompt = system_of(model)
    assert prompt.index("Use tabs.") < prompt.index("Answer in Welsh.")
    await session.close()


async def test_an_added_folder_can_be_read_and_written_and_the_model_knows_it(
    home, repository, tmp_path
):
    other = tmp_path / "other"
    write(other / "notes.txt", "here\n")
    session, model = await opened(
        repository,
        "Hello.",
        call("read", path=str(other / "notes.txt")),
        "Read.",
        call("write", path=str(other / "new.txt"), content="new\n"),
        "Written.",
        settings={"permissions.mode": "edit"},
    )
    await say(session, "one")
    front_end = FakeFrontEnd(session)
    await dispatch(front_end, f"/add-dir {other}")
    assert session.permissions.workspace.added == (other,)
    await say(session, "read it")
    assert "here" in str(model.requests[-1].messages)
    assert any(str(other) in str(message) for message in model.requests[-1].messages)
    await say(session, "write it")
    assert (other / "new.txt").read_text() == "new\n"
    for missing in ("nowhere", "~nobody-of-that-name/docs"):
        await dispatch(front_end, f"/add-dir {missing}")
        assert f"{missing} is not a folder" in front_end.lines[-1][1]
    await session.close()


async def test_a_writable_folder_of_an_unknown_user_stops_no_session(home, repository):
    session, model = await opened(
        repository, "Hello.", settings={"sandbox.writable": ["~nobody-of-that-name/x"]}
    )
    await say(session, "one")
    assert len(model.requests) == 1
    await session.close()


async def test_a_key_in_an_added_folder_stays_closed(home, repository, tmp_path):
    write(home / ".ssh/id_rsa", "key\n")
    session, _model = await opened(repository)
    await dispatch(FakeFrontEnd(session), f"/add-dir {home}")
    workspace = session.permissions.workspace
    assert workspace.is_inside(home / "notes.txt")
    assert not workspace.is_inside(home / ".ssh" / "id_rsa")
    await session.close()


async def test_safe_mode_uses_nothing_that_users_and_projects_add(home, repository):
    write(repository / "AGENTS.md", "Use tabs.\n")
    write(home / ".ouro/AGENTS.md", "Be brief.\n")
    write(home / ".ouro/commands/ship.md", "Ship it.\n")
    write(home / ".ouro/skills/pdf/SKILL.md", "---\ndescription: PDF\n---\nRead it.\n")
    write(repository / ".ouro/config.yaml", "permissions: {deny: ['read(api.py)']}\n")
    write(
        home / ".ouro/config.yaml",
        "hooks: [{event: user-prompt, command: exit 2}]\n"
        "mcp: {servers: {one: {command: nothing-of-this-name}}}\n"
        "permissions: {deny: ['read(secret.txt)']}\n",
    )
    session, model = await opened(repository, trust="unknown", safe=True)
    await say(session, "one")
    prompt = system_of(model)
    assert "Use tabs." not in prompt
    assert "Be brief." not in prompt
    assert "PDF" not in prompt
    assert not session.extensions.servers.by_name
    assert session.extensions.commands.find("ship") is None
    assert session.session_memory.manager is None
    assert [rule for rule in session.permissions.rules if "secret.txt" in str(rule)]
    assert any("Safe mode" in text for text in notices_of(session))
    await session.close()
