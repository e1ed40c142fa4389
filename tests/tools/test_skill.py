from ouro.assemble import Options, opener
from ouro.llm import ScriptedModel, call
from ouro.messages import ToolReply
from ouro.session import OpenRequest


async def opened(repository, *script):
    model = ScriptedModel(script)
    return await opener(Options(repository, ready_model=model))(OpenRequest(trust="yes")), model


async def test_the_model_reads_a_skill_and_the_user_runs_one(repository):
    folder = repository / ".agents/skills/pdf"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\ndescription: Reads PDF\n---\nUse pdftotext on $ARGUMENTS.\n"
    )
    session, model = await opened(repository, call("skill", name="pdf"), "Done.", "Done.")
    assert [event async for event in session.send("read it")]
    (reply,) = [
        part for message in model.requests[-1].messages for part in message.parts_of(ToolReply)
    ]
    assert "Use pdftotext" in reply.text
    assert "- pdf: Reads PDF" in model.requests[0].messages[0].text
    assert [event async for event in session.send("/pdf a.pdf")]
    assert "Use pdftotext on a.pdf." in str(model.requests[-1].messages[-1])
    assert model.requests[0].messages[0] == model.requests[-1].messages[0]
    await session.close()


async def test_without_skills_there_is_no_tool_and_no_section(repository):
    session, model = await opened(repository, "Done.")
    assert [event async for event in session.send("hi")]
    assert "skill" not in [tool.name for tool in model.requests[0].tools]
    assert "# Skills" not in model.requests[0].messages[0].text
    await session.close()
