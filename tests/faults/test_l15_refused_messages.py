"""L15: a provider refuses a message of the session: the error names it, and what leaves it out."""

import pytest
from fakes.model_server import Call, failure

REFUSALS = [
    ("The call {id} is blocked in your region.", "message {n} of"),
    ("Policy violation in the arguments of {id}", "message {n} of"),
    ("Der Aufruf {id} ist gesperrt.", "message {n} of"),
    ("Invalid 'messages[3].content': expected a string", "`/context drop N`"),
    ("body.messages.2.metadata: value is not valid", "`/context drop N`"),
    ("input[2].content: la valeur n'est pas acceptée", "`/context drop N`"),
]
UNPAIRED = [
    "messages.4: `tool_use` ids were found without `tool_result` blocks: {id}",
    "An assistant message with 'tool_calls' must be followed by tool messages. {id}",
    "No tool call found for function call output with call_id {id}.",
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'.",
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
            return failure(400, "messages.2: this content is blocked")
        is_again = "repeat it" in str(request.messages[-1]["content"])
        return "fine" if is_again else Call("read", {"path": "a.txt"})

    ouro.server.script(script)
    assert ouro.headless("-p", "go").code == 1
    terminal = ouro.screen("--resume", "latest")
    terminal.say("/context drop 3")
    terminal.until_shows("drop")
    terminal.say("repeat it")
    terminal.until_shows("fine")


@pytest.mark.parametrize("text", UNPAIRED)
def test_l15_calls_that_are_refused_are_sent_as_text(ouro, text):
    """The server refuses calls in the messages: the turn, and each later one, has an answer."""

    def script(request):
        calls = [call for message in request.messages for call in message.get("tool_calls") or ()]
        if calls:
            return failure(400, text.replace("{id}", calls[0]["id"]))
        is_told = "Result of the tool read" in request.raw.decode()
        return "It is told." if is_told else Call("read", {"path": "a.txt"})

    ouro.server.script(script)
    first = ouro.headless("-p", "go")
    assert (first.code, first.out.strip()) == (0, "It is told.")
    assert "sent as text" in first.err
    again = ouro.headless("--resume", "latest", "-p", "and now?")
    assert (again.code, again.out.strip()) == (0, "It is told.")
