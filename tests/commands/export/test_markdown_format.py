from fakes.stored_sessions import HOSTILE, everything, hostile, whole
from markdown_it import MarkdownIt

from ouro.commands.export import document
from ouro.memory.backend import MessageRecord
from ouro.messages import Image, ToolReply, assistant, tool, user

WRITTEN = """\
# A \\*title\\*

- **Session**: `0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f`
- **Folder**: `/home/me/app`
- **Model**: `a/one`
- **From**: 2026-11-21 20:14 to 2026-11-21 20:14
- **Used**: 17 tokens read (4 from the cache), 8 written, $0.25

## You · 2026-11-21 20:14

<details>
<summary>Added for the model</summary>

```
Today is Saturday.
```

</details>

Mend *it*

- now

![shot.png](data:image/png;base64,iVBORw0KGgo=)

## ouro · 2026-11-21 20:14 · a/one

<details>
<summary>Thinking</summary>

```
Hm.
```

</details>

Looking.

<details>
<summary><code>read api.py</code> — 1 line</summary>

```python
import os
```

</details>

<details>
<summary><code>shell pytest</code> — failed: exit 1</summary>

```console
$ pytest
bad
[exit code 1]
```

</details>

<details>
<summary><code>edit api.py</code> — +1 -1</summary>

```diff
--- a/api.py
+++ b/api.py
@@ -1 +1 @@
-a
+b
```

</details>

<details>
<summary><code>todo</code> — 1 todo</summary>

- ☑ Test

</details>

> `shell sleep 9` — not answered

<details>
<summary>Removed by a rewind</summary>

## You · 2026-11-21 20:14

No, like this

## ouro · 2026-11-21 20:14 · stopped in the middle

So?

*Went back to message 5.* 2026-11-21 20:14

*From here on a/two answers.* 2026-11-21 20:14

</details>

## You · 2026-11-21 20:14

Like that

## ouro · 2026-11-21 20:14

Done: `b`.

*1 note was recalled.* 2026-11-21 20:14

*Compacted: from here on a summary was sent instead of messages 1 to 9.* 2026-11-21 20:14

<details>
<summary>Summary</summary>

They mended it.

</details>

## You · 2026-11-21 20:14

Thanks
"""


def test_whole_session_is_written_in_order():
    assert "".join(document(everything(), "markdown")) == WRITTEN


def headings(text: str) -> list[str]:
    tokens = MarkdownIt().parse(text)
    return [
        tokens[place + 1].content
        for place, each in enumerate(tokens)
        if each.type == "heading_open"
    ]


def test_tool_output_cannot_break_out_of_its_fence():
    fences = (
        "\n".join("`" * length for length in range(3, 9)) + "\n~~~\n</details>\n## not a heading"
    )
    text = "".join(
        document(
            whole(
                MessageRecord(1, "", tool(ToolReply("1", "read", fences))),
                MessageRecord(2, "", user("x")),
            ),
            "markdown",
        )
    )
    assert headings(text) == ["Session", "You"]


def test_unclosed_fence_ends_with_its_message():
    records = [
        MessageRecord(1, "", assistant("````python\nx = 1\n```")),
        MessageRecord(2, "", user("~~~\nmore")),
    ]
    text = "".join(document(whole(*records, MessageRecord(3, "", user("end"))), "markdown"))
    assert headings(text) == ["Session", "ouro", "You", "You"]


def test_hostile_text_starts_no_markup():
    text = "".join(document(hostile(), "markdown"))
    tokens = MarkdownIt("commonmark", {"html": True}).parse(text)
    inner = [child for each in tokens for child in each.children or []]
    markup = {
        each.content for each in [*tokens, *inner] if each.type in ("html_block", "html_inline")
    }

    assert text.endswith("the end\n")
    assert not [
        each
        for each in markup
        if any(tag in each for tag in ("<script", "<style", "<img", "<a ", "<!--"))
    ]
    assert markup
    assert not set("\x1b\u202e\u2066\U000e0041") & set(text)
    assert HOSTILE.splitlines()[0] in text  # in a code block, unchanged


def test_large_and_svg_pictures_are_replaced_by_their_names():
    images = [
        Image("image/svg+xml", b"<svg/>", "a.svg"),
        Image("image/png", b"x" * 20_000, "b.png"),
    ]
    text = "".join(document(whole(MessageRecord(1, "", user("see", images))), "markdown"))
    assert text.endswith("see\n\n*[picture: a.svg, 6 bytes]*\n\n*[picture: b.png, 20,000 bytes]*\n")


def test_headings_of_an_answer_are_below_that_of_its_message():
    answer = "# Plan\n\n### Deep\n\n##### Deeper\n\n#tag\n\n```sh\n# a comment\n```"
    session = whole(MessageRecord(1, "", user("go")), MessageRecord(2, "", assistant(answer)))
    text = "".join(document(session, "markdown"))
    marked = [line for line in text.splitlines() if line.startswith("#")]
    assert marked[3:] == ["### Plan", "##### Deep", "###### Deeper", "#tag", "# a comment"]
