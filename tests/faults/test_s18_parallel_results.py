"""S18: parallel tool calls and a kill: results that were shown are saved, the others are reported
as unknown.
"""

from contextlib import aclosing

from ouro.assemble import Options, open_session
from ouro.events import ToolFinished
from ouro.llm import ScriptedModel, call, calls
from ouro.memory.manager import MemoryManager
from ouro.memory.short_term import INTERRUPTED
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolReply
from ouro.session import OpenRequest


async def test_s18_a_result_that_was_shown_is_on_disk_while_other_calls_run(repository):
    slow = call("shell", command="echo begun; exec sleep 86413")
    model = ScriptedModel([calls(slow, call("shell", command="echo done > made.txt; echo made"))])
    session = await open_session(
        Options(repository, {"permissions.mode": "auto"}, ready_model=model), OpenRequest()
    )

    async with aclosing(session.send("both")) as events:
        async for event in events:
            if isinstance(event, ToolFinished):
                # What a kill would leave now.
                left = await YamlFileMemoryStore().load_session(session.id, read_only=True)
                break
    await session.close()

    again = MemoryManager(header=left.header, loaded=left)
    (answer,) = [message for message in again.context() if message.role == "tool"]
    assert [reply.text.partition("\n")[0] for reply in answer.parts_of(ToolReply)] == [
        INTERRUPTED,
        "made",
    ]
    assert "not known whether this ran" in INTERRUPTED
    assert (repository / "made.txt").exists()
