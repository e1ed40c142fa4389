"""X9: several tools change one file; a file that changed after it was read."""

from __future__ import annotations

import asyncio

import pytest
from fakes.tool_benches import call

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read


@pytest.fixture
def tools(tmp_path):
    seen = FilesSeen(Workspace(tmp_path))
    return Read(seen), Write(seen), Edit(seen), ApplyPatch(seen)


def one_edit(old: str, new: str) -> list[dict[str, str]]:
    return [{"old_text": old, "new_text": new}]


async def test_x9_forty_parallel_edits_are_all_made(tools, tmp_path):
    read, _, edit, _ = tools
    (tmp_path / "a.txt").write_text("".join(f"<{number}>\n" for number in range(40)))
    await call(read, path="a.txt")
    changes = [
        call(edit, path="a.txt", edits=one_edit(f"<{number}>", f"[{number}]"))
        for number in range(40)
    ]
    await asyncio.gather(*changes)
    assert (tmp_path / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(40))


async def test_x9_second_of_two_edits_of_one_place_is_refused(tools, tmp_path):
    read, _, edit, _ = tools
    (tmp_path / "a.txt").write_text("x = 1\n")
    await call(read, path="a.txt")
    changes = [
        call(edit, path="a.txt", edits=one_edit("x = 1", f"value = {number}"))
        for number in (12, 34)
    ]
    results = await asyncio.gather(*changes, return_exceptions=True)
    refused = [result for result in results if isinstance(result, ToolError)]
    assert len(refused) == 1
    assert refused[0].message.startswith("old_text is not in the file.")


async def test_x9_edits_and_patches_under_two_names_are_all_made(tools, tmp_path):
    read, _, edit, patch = tools
    (tmp_path / "a.txt").write_text("".join(f"<{number}>\n" for number in range(20)))
    (tmp_path / "link.txt").symlink_to("a.txt")
    await call(read, path="a.txt")
    changes = [
        (
            call(edit, path="link.txt", edits=one_edit(f"<{number}>", f"[{number}]"))
            if number % 2
            else call(
                patch,
                input=(
                    f"*** Begin Patch\n*** Update File: ./a.txt\n-<{number}>\n+[{number}]\n*** End"
                    " Patch"
                ),
            )
        )
        for number in range(20)
    ]
    await asyncio.gather(*changes)
    assert (tmp_path / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(20))


def update(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", "*** Update File: a.txt", *lines, "*** End Patch"])


async def test_x9_a_file_that_changed_since_it_was_read_is_not_overwritten(tools, tmp_path):
    read, write, edit, patch = tools
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    await call(read, path="a.txt")
    path.write_text("one\ntwo  \nthree\n")
    refusal = r"^a\.txt has changed since it was last read\. Read it again, then change it\.$"
    with pytest.raises(ToolError, match=refusal):
        await call(write, path="a.txt", content="1\n")
    for guess in ("one\ntwo\n", "one\n2\n"):  # differs in spaces; is not there
        with pytest.raises(ToolError, match=refusal):
            await call(edit, path="a.txt", edits=one_edit(guess, "1"))
        lines = [f"-{line}" for line in guess.splitlines()]
        with pytest.raises(ToolError, match=refusal):
            await call(patch, input=update(*lines, "+1"))
    with pytest.raises(ToolError, match=refusal):
        await call(patch, input=update("*** Move to: b.txt", "-one", "+1"))
    assert path.read_text() == "one\ntwo  \nthree\n"


async def test_x9_an_exact_edit_of_a_changed_file_keeps_what_others_changed(tools, tmp_path):
    """A formatter changes a file after each edit: without this each edit needs a read before it."""
    read, write, edit, patch = tools
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    await call(read, path="a.txt")
    path.write_text("one\ntwo\nthree\n")
    result = await call(edit, path="a.txt", edits=one_edit("one", "1"))
    assert "a.txt had changed since you read it" in result.text
    assert path.read_text() == "1\ntwo\nthree\n"
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await call(write, path="a.txt", content="1\n2\n")
    await call(read, path="a.txt")
    path.write_text("1\ntwo\nthree\nfour\n")
    result = await call(patch, input=update("-two", "+2"))
    assert "a.txt had changed since you read it" in result.text
    assert path.read_text() == "1\n2\nthree\nfour\n"
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await call(write, path="a.txt", content="1\n")


async def test_x9_a_touched_file_with_the_same_text_may_be_changed(tools, tmp_path):
    read, _, edit, _ = tools
    (tmp_path / "a.txt").write_text("one\n")
    await call(read, path="a.txt")
    (tmp_path / "a.txt").write_text("one\n")
    await call(edit, path="a.txt", edits=one_edit("one", "two"))
    assert (tmp_path / "a.txt").read_text() == "two\n"


async def test_x9_cancelled_call_does_not_block_others(tools, tmp_path):
    read, _, edit, _ = tools
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    await call(read, path="a.txt")
    first = asyncio.ensure_future(call(edit, path="a.txt", edits=one_edit("one", "1")))
    await asyncio.sleep(0)
    first.cancel()
    await call(edit, path="a.txt", edits=one_edit("two", "2"))
    assert (tmp_path / "a.txt").read_text() in ("1\n2\n", "one\n2\n")
