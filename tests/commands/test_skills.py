import pytest
from fakes.fake_front_end import FakeFrontEnd, slash
from fakes.files import write
from msgspec.structs import replace

from ouro.assemble import Options, opener
from ouro.errors import UsageError
from ouro.extensions import Skills, find_files
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest

DRAFT = (
    "---\nname: release\ndescription: Makes a release. Use it to publish.\n---\n# Release\n##"
    " Steps\n1. make\n"
)


async def test_skills_are_listed_with_their_cost_and_switched(home):
    write(home / ".ouro/skills/pdf/SKILL.md", f"---\ndescription: Reads PDF\n---\n{'x' * 700}")
    saved = []
    found = Skills(
        find_files("skills", home, trusted=True)[0], (), 2_000, lambda _path: True, saved.append
    )
    front_end = FakeFrontEnd()
    session = front_end.session
    await slash(front_end, "skills")
    assert front_end.lines.pop()[1].startswith("There are no skills.")
    session.extensions = replace(session.extensions, skills=found)
    await slash(front_end, "skills")
    assert "about 4 tokens in each request" in front_end.shown[0]
    assert (
        "`/pdf` · on · 4 tokens, 200 when used · `~/.ouro/skills/pdf` · Reads PDF"
        in front_end.shown[0]
    )
    await slash(front_end, "skills", "off pdf")
    await slash(front_end, "skills")
    assert saved == [("pdf",)]
    assert "· off ·" in front_end.shown[1]
    with pytest.raises(UsageError, match="There is no skill `doc`"):
        await slash(front_end, "skills", "on doc")
    with pytest.raises(UsageError) as error:
        await slash(front_end, "skills", "maybe pdf")
    assert "''" not in str(error.value)


async def opened(repository, *script):
    model = ScriptedModel([call("shell", command="git log"), "Done.", *script])
    session = await opener(Options(repository, ready_model=model))(OpenRequest())
    return session, model


@pytest.mark.parametrize("answer", [DRAFT, f"```markdown\n{DRAFT}```"])
async def test_a_skill_is_drafted_from_the_session_edited_and_saved(repository, home, answer):
    session, model = await opened(repository, answer)
    assert [event async for event in session.send("publish it")]
    front_end = FakeFrontEnd(session, ["edit", DRAFT.replace("make", "make release"), "user"])
    await slash(front_end, "skill", "save how to release")
    asked = model.requests[-1].messages[-1].text
    assert "User: publish it\nCall shell: {'command': 'git log'}\nResult of shell:" in asked
    assert asked.endswith("The user wants the skill to be about: how to release")
    assert "1. make release" in (home / ".ouro/skills/release/SKILL.md").read_text()
    assert (
        front_end.lines[-1][1]
        == "Saved ~/.ouro/skills/release/SKILL.md: new sessions use it. Edit it there."
    )
    assert session.memory.messages()[-1].text == "Done."
    await session.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("I cannot do that.", "The draft is not a skill"),
        ("---\nname: ../x\ndescription: y\n---\ntext", "The draft is not a skill"),
        (f"{DRAFT}2. export TOKEN=ghp_{'aB3x' * 9}\n", "The draft holds"),
    ],
)
async def test_invalid_or_secret_draft_is_not_saved(repository, home, answer, why):
    session, _ = await opened(repository, answer)
    with pytest.raises(UsageError, match="There are no messages yet"):
        await slash(FakeFrontEnd(session), "skill", "save")
    assert [event async for event in session.send("publish it")]
    with pytest.raises(UsageError, match=why):
        await slash(FakeFrontEnd(session, ["user"]), "skill", "save")
    assert not (home / ".ouro/skills").exists()
    await session.close()


async def test_an_existing_skill_is_not_overwritten_and_a_draft_can_be_dropped(repository, home):
    write(home / ".ouro/skills/release/SKILL.md", "mine")
    session, _ = await opened(repository, DRAFT, DRAFT)
    assert [event async for event in session.send("publish it")]
    with pytest.raises(UsageError, match="exists"):
        await slash(FakeFrontEnd(session, ["user"]), "skill", "save")
    await slash(FakeFrontEnd(session, [None]), "skill", "save")
    assert (home / ".ouro/skills/release/SKILL.md").read_text() == "mine"
    await session.close()


async def test_an_edit_that_is_not_a_skill_is_refused_and_the_draft_stays(repository, home):
    session, _ = await opened(repository, DRAFT)
    assert [event async for event in session.send("publish it")]
    front_end = FakeFrontEnd(session, ["edit", "nothing", "user"])
    await slash(front_end, "skill", "save")
    assert (
        "error",
        "The draft is not a skill: it needs a name, a description and a text. Try again.",
    ) in front_end.lines
    assert (home / ".ouro/skills/release/SKILL.md").read_text() == DRAFT
    await session.close()
