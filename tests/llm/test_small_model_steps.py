"""The single-step requests to a very small model."""

import asyncio

import pytest
from fakes.waiting import until

from ouro.errors import TransientModelError
from ouro.llm import ModelCall, ModelSpec, ScriptedModel, ScriptedReply, ToolSpec
from ouro.llm.small_model_memory import MAX_LINES, choose_lines, remembered_lines
from ouro.llm.small_model_steps import StepRequest, hide_steps, next_step, small_tools
from ouro.messages import ToolCall, ToolReply, assistant, system, tool, user

NAMES = ("read", "edit", "write", "glob", "grep", "shell", "todo", "subagent")
FIELDS = {"shell": "command", "glob": "pattern", "grep": "pattern"}
TOOLS = [
    ToolSpec(
        name,
        f"{name}.",
        {"type": "object", "properties": {FIELDS.get(name, "path"): {"type": "string"}}},
    )
    for name in NAMES
]
TASK = "The tests fail. Find out why, and mend it. Run them with: pytest -q"
OLD = "def total(lines):\n    return sum(price for price, count in lines)\n"
NEW = OLD.replace("sum(price for", "sum(price * count for")
FAILED = "E  assert 1650 == 2850\n[exit code 1, 0.3 s]"
FILES = "tests/test_basket.py\nshop/basket.py\nREADME.md\n[100 of 120, the newest.]"
RUN = ToolCall("call_1", "shell", {"command": "pytest -q"})


def number_lines(text):
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.splitlines(), 1))


def start(task=TASK):
    return [system("How to work."), user(task)]


def extend(messages, call, text, failed=False):
    return [*messages, assistant("", call), tool(ToolReply(call.id, call.name, text, failed))]


def failed_run(task=TASK, output=FAILED):
    return extend(start(task), RUN, output, failed=True)


def after_read(path, task=TASK, text=OLD, *, of=None):
    """The messages up to the content of the file to change."""
    return extend(
        of or start(task), ToolCall("tochange_1", "read", {"path": path}), number_lines(text)
    )


def block(text):
    return f"Here it is:\n\n```python\n{text}```\n\nIt counts now."


async def test_a_failed_command_is_repaired_step_by_step():
    """All requests but the first and the last ask one question; the command is run again without a
    request.
    """
    run = '{"name": "shell", "arguments": {"command": "pytest -q"}}'
    done = '{"name": "answer", "arguments": {"text": "It counts every piece."}}'
    results = [
        (FAILED, True),
        (FILES, False),
        (number_lines(OLD), False),
        ("Changed.", False),
        ("3 passed", False),
    ]
    script = [run, '{"path": "shop/basket.py"}', block(NEW), done]
    model = ScriptedModel(script, spec=ModelSpec("some-1.5b"))
    messages, calls = start(), []
    for text, failed in results:
        message = await ModelCall([model], messages, TOOLS).run()
        [call] = message.tool_calls
        calls.append((call.name, dict(call.arguments)))
        messages = [*messages, message, tool(ToolReply(call.id, call.name, text, failed))]
    answer = await ModelCall([model], messages, TOOLS).run()

    edit = {"old_text": OLD.splitlines()[1], "new_text": NEW.splitlines()[1]}
    assert calls == [
        ("shell", {"command": "pytest -q"}),
        ("glob", {"pattern": "**"}),
        ("read", {"path": "shop/basket.py"}),
        ("edit", {"path": "shop/basket.py", "edits": [edit]}),
        ("shell", {"command": "pytest -q"}),
    ]
    assert answer.text == "It counts every piece."
    which, text = (request.messages for request in model.requests[1:3])
    assert ([len(which), len(text)], len(model.requests)) == ([1, 1], 4)
    assert TASK in which[0].text
    assert FAILED in which[0].text
    assert "\nREADME.md\nshop/basket.py\n\n" in which[0].text  # the test file is not listed
    assert FAILED in text[0].text
    assert f"```\n{OLD}```" in text[0].text
    last = "\n".join(message.text for message in model.requests[3].messages)
    assert (
        '{"name": "change", "arguments": {"path": "shop/basket.py"}}' in last,
        '"glob"' in last,
    ) == (True, False)


@pytest.mark.parametrize(
    ("task", "aim", "listed"),
    [
        ("Finde den Fehler und behebe ihn", "change", True),
        ("Run pytest -q and tell me how many tests fail.", "answer", False),
        ("テストが通るように直して", "not JSON", False),
    ],
)
async def test_the_model_is_asked_what_a_task_in_another_language_wants(task, aim, listed):
    script = [f'{{"wants": "{aim}"}}' if aim != "not JSON" else aim, "Two tests fail."]
    model = ScriptedModel(script, spec=ModelSpec("some-1.5b"))
    message = await ModelCall([model], failed_run(task), TOOLS).run()
    assert task in model.requests[0].messages[0].text
    assert len(model.requests[0].messages) == 1
    calls = [(call.name, dict(call.arguments)) for call in message.tool_calls]
    assert calls == ([("glob", {"pattern": "**"})] if listed else [])
    assert message.text == ("" if listed else "Two tests fail.")


async def test_chosen_change_starts_with_reading_the_file():
    change = '{"name": "change", "arguments": {"path": "shop/basket.py"}}'
    write = (
        '{"name": "write", "arguments": {"path": "shop/basket.py", "content": "def total(): ..."}}'
    )
    fields = {"path": {"type": "string"}, "content": {"type": "string"}}
    tools = [*TOOLS, ToolSpec("write", "write.", {"type": "object", "properties": fields})][::-1]
    read = extend(
        start(), ToolCall("call_1", "read", {"path": "shop/basket.py"}), number_lines(OLD)
    )
    for messages, text, name in (
        (start(), change, "read"),
        (read, write, "read"),
        (start(), write, "write"),
    ):
        message = await ModelCall(
            [ScriptedModel([text], spec=ModelSpec("some-1.5b"))], messages, tools
        ).run()
        assert [call.name for call in message.tool_calls] == [name]


@pytest.mark.parametrize(
    "messages",
    [
        failed_run(output="bash: pytset: command not found\n[exit code 127, 0.0 s]"),
        extend(start(), RUN, "3 passed\n[exit code 0, 0.3 s]"),
        extend(start(), RUN, "The user refused this call.", failed=True),
        extend(start(), RUN, "…\n[time limit, 60.0 s]", failed=True),
        extend(
            start(),
            ToolCall("tochange_1", "read", {"path": "a.py"}),
            "The user refused this call.",
            failed=True,
        ),
        failed_run()[:-1],
        start(),
    ],
)
def test_other_turns_have_no_next_step(messages):
    assert next_step(messages, TOOLS) is None


def test_no_step_after_three_failures():
    messages = start()
    for number in range(4):
        messages = extend(
            messages,
            ToolCall(f"call_{number}", "shell", {"command": "pytest -q"}),
            FAILED,
            failed=True,
        )
        assert (next_step(messages, TOOLS) is None) == (number == 3)


def test_no_step_without_its_tools():
    assert next_step(failed_run(), [each for each in TOOLS if each.name != "edit"]) is None
    assert next_step(failed_run(), TOOLS) is not None


@pytest.mark.parametrize(
    ("task", "answer", "path"),
    [
        (TASK, '{"path": "shop/basket.py"}', "shop/basket.py"),
        (TASK, '{"path": "tests/test_basket.py"}', None),
        ("Mend test_basket.py", '{"path": "tests/test_basket.py"}', "tests/test_basket.py"),
        (TASK, '{"path": "none"}', None),
        (TASK, '{"path": "../etc/passwd"}', None),
        (TASK, "shop/basket.py", None),
        (TASK, "[1]", None),
    ],
)
def test_file_choice_is_limited_to_listed_files_without_tests(task, answer, path):
    step = next_step(
        extend(failed_run(task), ToolCall("fault_1", "glob", {"pattern": "**"}), FILES), TOOLS
    )
    assert isinstance(step, StepRequest)
    call = step.call(answer)
    assert (call and call.arguments["path"]) == path
    assert "[100 of" not in str(step.schema)


def test_among_many_files_those_named_in_the_output_are_offered():
    files = "\n".join(f"src/part{number}.py" for number in range(200)) + "\nsrc/zebra.py"
    messages = failed_run(output=f"zebra is wrong\n{FAILED}")
    step = next_step(extend(messages, ToolCall("fault_1", "glob", {"pattern": "**"}), files), TOOLS)
    assert isinstance(step, StepRequest)
    names = step.schema["properties"]["path"]["enum"]
    assert (len(names), names[0], names[-1]) == (41, "src/zebra.py", "none")


@pytest.mark.parametrize(
    ("old", "new", "edit"),
    [
        (OLD, NEW, (OLD.splitlines()[1], NEW.splitlines()[1])),
        (
            "a\nb\na\nb\n",
            "a\nb\na\nc\n",
            ("b\na\nb", "b\na\nc"),
        ),  # the changed line alone is there twice
        ("a\nb\n", "a\nx\nb\n", ("a\nb", "a\nx\nb")),
        ("a\nb\nc\n", "a\nc\n", ("a\nb\nc", "a\nc")),
        (
            "key = [secret removed]\nport = 1\n",
            "key = [secret removed]\nport = 2\n",
            ("port = 1", "port = 2"),
        ),
    ],
)
def test_edit_contains_the_changed_lines_and_unique_context(old, new, edit):
    step = next_step(after_read("a.py", "Change it.", old), TOOLS)
    assert isinstance(step, StepRequest)
    call = step.call(block(new))
    assert (call.name, call.arguments) == (
        "edit",
        {"path": "a.py", "edits": [{"old_text": edit[0], "new_text": edit[1]}]},
    )
    assert old.count(edit[0]) == 1
    assert old.replace(edit[0], edit[1]) == new


@pytest.mark.parametrize(
    "answer",
    [
        "I have changed it.",
        block(OLD),
        "```\nx = 1\n",
        block("x = 1\n# ... rest of the file\n" * 2),
        block("# the rest of the code is unchanged\n    y = 1\n"),
        block("x\n"),
    ],
)
def test_an_answer_that_is_not_the_whole_changed_file_is_not_used(answer):
    step = next_step(after_read("a.py", text=OLD + "x = 1\ny = 2\n"), TOOLS)
    assert isinstance(step, StepRequest)
    assert step.call(answer.replace(OLD, OLD + "x = 1\ny = 2\n")) is None


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{number}\tline" for number in range(1, 500)),
        "1\tx\n[Lines 1-1 of 9.]",
        "1\t# Use\n2\t```\n3\tx",
        "[picture]",
    ],
)
def test_file_that_cannot_be_returned_whole_uses_edit(text):
    messages = extend(start(), ToolCall("tochange_1", "read", {"path": "a.md"}), text)
    assert next_step(messages, TOOLS) is None
    assert "edit" in {each.name for each in small_tools(messages, TOOLS)}


def test_a_file_that_does_not_exist_is_written():
    messages = extend(
        start("Add hello.py."),
        ToolCall("tochange_1", "read", {"path": "hello.py"}),
        "hello.py does not exist.",
        True,
    )
    step = next_step(messages, TOOLS)
    assert isinstance(step, StepRequest)
    call = step.call(block("print(1)\n"))
    assert (call.name, call.arguments) == ("write", {"path": "hello.py", "content": "print(1)\n"})


def test_small_models_get_change_instead_of_edit_and_fewer_tools():
    assert [each.name for each in small_tools(start(), TOOLS)] == [
        "read",
        "change",
        "write",
        "glob",
        "grep",
        "shell",
    ]
    assert [each.name for each in small_tools(start(), TOOLS[1:])] == [
        "edit",
        "write",
        "glob",
        "grep",
        "shell",
    ]


PROMPT = """\
How to work with the tools below.

# The project's instructions
<instructions file="/home/ada/shop/AGENTS.md">
Use tabs.
</instructions>

<memory-1 scope="repo" file="facts.md">
| - Dates are stored in UTC.
|
| - Log lines are JSON.
</memory-1>"""


async def test_what_was_told_is_beside_each_message_also_with_tools():
    messages = extend([system(PROMPT), user("Which tests fail?")], RUN, "3 passed")
    context = (
        "<environment>\nDate: 2026-11-23\n</environment>\n\n| [mem_1a2b] (repo · corrections ·"
        " 2026-11-23) a note"
    )
    asked = user("Why did they fail?", context=context)
    messages = [*messages, assistant("All pass."), asked]
    model = one_answer('{"name": "answer", "arguments": {"text": "The count was missing."}}')
    message = await ModelCall([model], messages, TOOLS).run()
    [request] = model.requests
    assert message.text == "The count was missing."
    assert request.messages[0].text.startswith("How to work with the tools below.")
    assert request.messages[-1].text == (
        "I have told you before:\n- Dates are stored in UTC.\n- Log lines are JSON.\n- a note\n\n"
        "Now I ask: Why did they fail?\n\nKeep to what I have told you."
    )


def test_changes_of_memory_in_the_session_are_what_was_told():
    changed = (
        '<memory-0f changed="repo 1a2b">\nLong-term memory has changed\n| repo/facts.md:\n'
        "| -- Dates are stored in UTC.\n| +- Dates are stored in local time.\n</memory-0f>"
    )
    messages = [system(PROMPT), user("Hi", context=changed), assistant("Hello."), user("Go on.")]
    assert remembered_lines(messages) == ["Log lines are JSON.", "Dates are stored in local time."]


def test_of_many_lines_those_on_the_subject_and_prohibitions_are_beside_the_message():
    lines = [f"| - Service {number} has a database." for number in range(40)]
    lines += ["| - Never touch vendor/crc.", "| - The basket holds decimals."]
    found = choose_lines([system("\n".join(lines)), user("Mend the basket.")], "Mend the basket.")
    assert len(found) == MAX_LINES
    assert {"Never touch vendor/crc.", "The basket holds decimals."} <= {*found}


VENDOR = "# Memory\n| - Don't touch vendor/crc"
REMOVE = '{"name": "shell", "arguments": {"command": "rm -rf vendor/crc/table.c"}}'
READ = '{"name": "read", "arguments": {"path": "vendor/crc/table.c"}}'


async def test_l13_call_that_a_remembered_line_forbids_is_not_made_and_another_one_is_chosen():
    model = ScriptedModel([REMOVE, READ], spec=ModelSpec("some-1.5b"))
    message = await ModelCall(
        [model], [system(VENDOR), user("Clean up the crc table.")], TOOLS
    ).run()
    [call] = message.tool_calls
    assert (call.name, call.arguments) == ("read", {"path": "vendor/crc/table.c"})
    assert "No. I have told you: Don't touch vendor/crc" in model.requests[1].messages[-1].text


async def test_l13_model_that_insists_on_a_forbidden_call_asks_the_user_who_decides():
    asked = [system(VENDOR), user("Clean up the crc table.")]
    model = ScriptedModel([REMOVE, REMOVE, REMOVE], spec=ModelSpec("some-1.5b"))
    message = await ModelCall([model], asked, TOOLS).run()
    assert message.tool_calls == ()
    assert message.text == (
        "I did not do that: shell rm -rf vendor/crc/table.c\n"
        "You told me: Don't touch vendor/crc\nShall I do it nevertheless?"
    )
    answered = [*asked, assistant(message.text), user("Yes, remove it.")]
    again = await ModelCall([model], answered, TOOLS).run()
    assert [call.name for call in again.tool_calls] == ["shell"]


def test_request_for_a_file_has_what_was_told():
    messages = [system("| - Prices are integers in cents"), *after_read("a.py")[1:]]
    step = next_step(messages, TOOLS)
    assert "Keep to this:\n- Prices are integers in cents" in step.text


def test_model_sees_only_the_change_and_not_its_steps():
    edit = ToolCall("changed_1", "edit", {"path": "a.py", "edits": []})
    messages = extend(after_read("a.py", of=failed_run()), edit, "Changed.")
    shown = hide_steps(messages)
    assert [part.name for message in shown for part in (*message.tool_calls, *message.parts_of(ToolReply))] == [
        "shell", "shell", "change", "change",
    ]  # fmt: skip
    assert shown[-2].tool_calls[0].arguments == {"path": "a.py"}


async def test_invalid_step_answer_is_requested_once():
    done = '{"name": "answer", "arguments": {"text": "I cannot."}}'
    model = ScriptedModel(
        ["no code", TransientModelError("broke"), done], spec=ModelSpec("some-1.5b")
    )

    async def no_wait(_seconds):
        return None

    message = await ModelCall([model], after_read("a.py"), TOOLS, sleep=no_wait).run()
    assert (message.text, len(model.requests)) == ("I cannot.", 3)
    assert (
        message.usage.output
        == 2 * (await ModelCall([one_answer(done)], start(), TOOLS).run()).usage.output
    )


def one_answer(text):
    return ScriptedModel([text], spec=ModelSpec("some-1.5b"))


async def test_partial_step_is_not_shown():
    held = asyncio.Event()
    model = one_answer(ScriptedReply(block(NEW), hold=held.wait))
    call = ModelCall([model], after_read("a.py"), TOOLS)
    shown = []
    running = asyncio.create_task(call.run(shown.append))
    await until(lambda: model.requests)
    await asyncio.sleep(0.01)
    assert (call.partial().parts, shown) == ((), [])
    held.set()
    assert (await running).tool_calls[0].name == "edit"


def test_ellipses_already_in_the_file_are_accepted():
    old = "class Store(Protocol):\n    def get(self): ...\n    ...\nx = 1\n"
    step = next_step(after_read("a.py", text=old), TOOLS)
    assert step.call(block(old.replace("x = 1", "x = 2"))).name == "edit"
