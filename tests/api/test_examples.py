"""The Python API: the examples of docs/api.md."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from fakes.model_server import Call, Reply

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/api.md").read_text(), re.DOTALL
)


def answer(request):
    """The answers of the model in the examples."""
    results = request.results
    match re.sub(r"(?s)<environment>.*</environment>\s*|\n.*", "", request.prompt):
        case "Read api.py and explain it." if not results:
            return Reply("I look. ", calls=[Call("read", {"path": "api.py"})])
        case "Write notes.md with a summary of this folder." if not results:
            return Reply(calls=[Call("write", {"path": "notes.md", "content": "One file.\n"}),
                                Call("shell", {"command": "git push"})])  # fmt: skip
        case "Order two cups if they cost less than 30 euros.":
            steps = [
                Call("price", {"article": "cup", "count": 2}),
                Call("order", {"article": "cup", "count": 2}),
            ]
            return (
                Reply(calls=[steps[len(results)]])
                if len(results) < 2
                else f"{results[0]}: {results[1]}"
            )
        case "Add a farewell to api.py." if not results:
            farewell = {"path": "api.py", "content": 'print("bye")\n'}
            return Reply(calls=[Call("read", {"path": "api.py"}), Call("write", farewell)])
        case "Which functions are in api.py?":
            return '[{"name": "hello", "arguments": ["name"]}]'
        case "How many tests are there?":
            return '{"tests": 0}'
        case "Which word?":
            return "Karst" if "Karst" in str(request.messages[1]) else "?"
        case text:
            return f"You said: {text}"


@pytest.fixture
def documented(project, model_server):
    """The project, with the model of the examples."""
    model_server.script(answer)
    return project


SHOWN = {
    "What does api.py do?": "You said: What does api.py do?",
    "Read api.py": "I look. [read: 5 lines]",
    "Write notes.md": "git push: ",
    "Order two cups": "2400: 2 cup ordered.",
    "Which functions": "hello ['name']\n0\n",
    "What is in this picture": "You said: What is in this picture?",
    "Explain api.py": "You said: Explain api.py.You said: In one sentence?",
    "Which word": "Karst",
    "Add a farewell": "('Undone: api.py.',)\n('Changed again: api.py.',)\nAdd a farewell to api.py.",
}


@pytest.mark.parametrize("words", SHOWN)
def test_the_examples_work(documented, model_server, words):
    [example] = [code for code in EXAMPLES if words in code]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(example, "docs/api.md", "exec", dont_inherit=True), {"__name__": "example"})
    assert SHOWN[words] in printed.getvalue()
    if words == "Write notes.md":
        assert (documented / "notes.md").read_text() == "One file.\n"
        assert "Refused: Only files may be written." in model_server.requests[-1].results[1]
    if words == "What is in this picture":
        assert "data:image/png;base64," in str(model_server.requests[-1].messages[-1])


def test_every_example_is_run():
    assert len(EXAMPLES) == len(SHOWN)
