"""L15: a provider refuses a message of the session: the error names it, and what leaves it out."""

import pytest
from fakes.model_server import Call, failure

REFUSALS = [
    ("messages.4: `tool_use` ids were found without `tool_result` blocks: {id}", "message {n} of"),
    (
        "An assistant message with 'tool_calls' must be followed by tool messages. {id}",
        "message {n} of",
    ),
    ("No tool call found for function call output with call_id {id}.", "message {n} of"),
    ("Invalid 'messages[3].content': expected a string", "`/context drop N`"),
    ("body.messages.2.tool_calls.0.id: field required", "`/context drop N`"),
    ("input[2].content: la valeur n'est pas acceptée", "`/context drop N`"),
]


@pytest.mark.parametrize(("text", "named"), REFUSALS)
def test_l15_the_error_names_the_message_and_the_way_out(ouro, text, named):
    def script(request):
        calls = [call for message in request.messages for call in message.get("tool_calls") or ()]
        if not calls:
            return Call("read", {"path": "a.txt"})
        return failure(400, text.replace("{id}", calls[0]["id"]))

    ouro.server.script(script)
    message = ouro.headless("-p", "go").err
    assert "/rewind" in message
    assert named.partition("{n}")[0] in message


def test_l15_a_session_works_again_without_the_message(ouro):
    def script(request):
        if any(message.get("tool_calls") for message in request.messages):
            return failure(400, "messages.2: unexpected tool_calls")
        is_again = "repeat it" in str(request.messages[-1]["content"])
        return "fine" if is_again else Call("read", {"path": "a.txt"})

    ouro.server.script(script)
    assert ouro.headless("-p", "go").code == 1
    terminal = ouro.screen("--resume", "latest")
    terminal.say("/context drop 3")
    terminal.until_shows("drop")
    terminal.say("repeat it")
    terminal.until_shows("fine")
