"""What a language server says is new after a change of the agent."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from fakes.tool_benches import call
from fakes.waiting import until

from ouro.lsp.configuration import KNOWN, LanguageServerSpec
from ouro.tools.edit import Edit


async def test_wrong_edit_shows_the_error_and_its_correction_none(bench):
    bench.open()
    bench.file("a.toy", "one\ntwo\n")
    await bench.read("a.toy")
    text = await bench.edit("a.toy", "two", "two\nwrong turn")
    assert "New errors since your changes:\na.toy:3:1: turn is wrong [wrong] (toy)" in text
    assert "taste" not in text
    assert "error" not in await bench.edit("a.toy", "wrong turn", "right turn")


@pytest.mark.parametrize("mode", ["pull", "push and pull"])
async def test_a_server_that_publishes_nothing_is_asked(bench, mode):
    """anomalyco/opencode#3116: it was ended after two changes, as one that is silent."""
    [server] = bench.open(mode=mode).servers
    bench.file("a.toy", "one\ntwo\n")
    await bench.read("a.toy")
    for word in ("turn", "way", "end"):
        text = await bench.edit("a.toy", "two", f"two\nwrong {word}")
        assert f"{word} is wrong" in text
    assert "error" not in await bench.edit("a.toy", "wrong turn", "right turn")
    assert server.state == "ready"


async def test_file_that_was_not_read_is_compared_with_what_it_was(bench):
    bench.open()
    bench.file("a.toy", "wrong before\n")
    text = await bench.edit("a.toy", "wrong before", "wrong before\nwrong now")
    assert "now is wrong" in text
    assert "before is wrong" not in text


@pytest.mark.parametrize("versions", [True, False])
async def test_errors_are_new_once_and_again_after_they_were_fixed(bench, versions):
    bench.open(no_versions=not versions)
    bench.file("a.toy", "one\n")
    await bench.read("a.toy")
    assert "x is wrong" in await bench.edit("a.toy", "one", "one\nwrong x")
    assert "error" not in await bench.edit("a.toy", "one", "two")
    assert "error" not in await bench.edit("a.toy", "wrong x", "good")
    assert "x is wrong" in await bench.edit("a.toy", "good", "wrong x")


async def test_a_second_error_with_the_same_text_is_new(bench):
    bench.open()
    bench.file("a.toy", "wrong x\n")
    text = await bench.edit("a.toy", "wrong x", "wrong x\nwrong x")
    assert text.count("x is wrong") == 1


async def test_file_that_the_agent_did_not_touch_is_reported_if_the_edit_broke_it(bench):
    bench.open()
    bench.file("a.toy", "def heron\n")
    bench.file("b.toy", "use heron\nwrong old\n")
    await bench.read("b.toy")
    text = await bench.edit("a.toy", "heron", "egret")
    assert "b.toy:1:1: heron is not defined" in text
    assert "old is wrong" not in text


async def test_change_on_disk_by_another_program_is_not_reported(bench):
    bench.open()
    bench.file("a.toy", "one\n")
    other = bench.file("b.toy", "two\n")
    await bench.read("a.toy")
    await bench.read("b.toy")
    await bench.edit("a.toy", "one", "three")
    other.write_text("wrong by another program\n")
    assert "error" not in await bench.edit("a.toy", "three", "four")


async def test_server_hears_of_files_made_changed_and_removed_by_others(bench, tmp_path):
    log = tmp_path / "log"
    bench.open(log=str(log))
    bench.file("a.toy", "one\n")
    gone = bench.file("gone.toy", "")
    await bench.edit("a.toy", "one", "two")
    bench.file("new.toy", "def heron\n")
    gone.unlink()
    assert "error" not in await bench.edit("a.toy", "two", "use heron")
    await until(lambda: "gone.toy:3 new.toy:1" in log.read_text().replace("a.toy:2 ", ""))


async def test_patch_of_several_files_is_checked_as_a_whole(bench):
    bench.open()
    bench.file("a.toy", "one\n")
    bench.file("gone.toy", "def lost\n")
    bench.file("user.toy", "use lost\n")
    await bench.read("user.toy")
    text = await bench.patch(
        "*** Begin Patch\n*** Update File: a.toy\n-one\n+wrong a\n*** Add File: b.toy\n+wrong b\n"
        "*** Delete File: gone.toy\n*** End Patch"
    )
    assert "a is wrong" in text
    assert "b is wrong" in text
    assert "lost is not defined" in text


async def test_user_sees_the_first_new_error(bench):
    bench.open()
    bench.file("a.toy", "one\n")
    edits = [{"old_text": "one", "new_text": "wrong turn"}]
    result = await call(Edit(bench.seen), path="a.toy", edits=edits)
    assert result.display.summary.startswith("+1 −1 · 1 new error: a.toy:1:1: turn is wrong")


async def test_result_has_at_most_ten_errors(bench):
    bench.open(mode="many")
    bench.file("a.toy", "one\n")
    text = await bench.edit("a.toy", "one", "wrong")
    assert text.count("a.toy:") == 10
    assert text.endswith("… and 490 more new errors")


async def test_errors_that_come_late_are_in_the_next_result(bench):
    bench.open(seconds=0.05)
    bench.file("a.toy", "one\n")
    assert "error" not in await bench.edit("a.toy", "one", "wrong late")
    bench.opened[0]._check_seconds = 50
    await until(lambda: bench.opened[0].servers[0].late)
    assert "late is wrong" in await bench.edit("a.toy", "wrong late", "wrong late\nmore")


async def test_late_errors_can_be_had_without_another_change(bench):
    servers = bench.open(seconds=0.05)
    bench.file("a.toy", "one\n")
    assert "error" not in await bench.edit("a.toy", "one", "wrong late")
    (line,) = await servers.late_errors(50)
    assert "late is wrong" in line
    assert await servers.late_errors(50) == []


async def test_late_errors_are_not_waited_for_if_nothing_is_checked(bench):
    bench.file("a.toy", "one\n")
    servers = bench.open(mode="silent")
    await bench.read("a.toy")
    assert await servers.late_errors(50) == []
    assert await servers.late_errors(0) == []


async def test_parallel_changes_report_each_error_once(bench):
    bench.open()
    for name in "abc":
        bench.file(f"{name}.toy", "one\n")
        await bench.read(f"{name}.toy")
    texts = await asyncio.gather(
        *(bench.edit(f"{name}.toy", "one", f"wrong {name}") for name in "abc")
    )
    joined = "\n".join(texts)
    assert [joined.count(f"{name} is wrong") for name in "abc"] == [1, 1, 1]


async def test_no_process_is_started_for_other_files(bench):
    servers = bench.open()
    bench.file("a.txt", "one\n")
    await bench.read("a.txt")
    assert await bench.edit("a.txt", "one", "wrong") == "Changed a.txt (+1 −1)."
    assert servers._worker._process is None
    assert servers.servers[0].state == "waiting"


async def test_two_servers_that_find_the_same_error_report_it_once(bench):
    from fakes.tool_benches import server_command

    bench.open_specs(
        LanguageServerSpec("first", server_command(), {".toy": "toy"}),
        LanguageServerSpec("second", server_command(), {".toy": "toy"}),
    )
    bench.file("a.toy", "one\n")
    text = await bench.edit("a.toy", "one", "wrong x")
    assert text.count("x is wrong") == 1
    assert "(first)" in text


async def test_place_that_one_server_has_reported_is_not_reported_late_by_another(bench):
    from fakes.tool_benches import server_command

    servers = bench.open_specs(
        LanguageServerSpec("fast", server_command(), {".toy": "toy"}),
        LanguageServerSpec("slow", server_command(slow=1), {".toy": "toy"}),
        seconds=0.5,
    )
    bench.file("a.toy", "one\n")
    await bench.read("a.toy")
    texts = [await bench.edit("a.toy", "one", "wrong x"), *await servers.late_errors(50)]
    assert "\n".join(texts).count("x is wrong") == 1
    texts = [await bench.edit("a.toy", "wrong x", "wrong y"), *await servers.late_errors(50)]
    assert "\n".join(texts).count("y is wrong") == 1


async def test_server_ends_with_the_session(bench):
    servers = bench.open()
    bench.file("a.toy", "one\n")
    await bench.edit("a.toy", "one", "two")
    worker, group = servers._worker._process, servers.servers[0]._group
    await servers.close()
    await until(lambda: not worker.alive)
    await until(
        lambda: (
            not Path(f"/proc/{group}").exists()
            or "zombie" in Path(f"/proc/{group}/status").read_text()
        )
    )


@pytest.mark.parametrize("spec", KNOWN, ids=lambda spec: spec.name)
async def test_known_server_of_this_machine_finds_an_error(bench, spec):
    """With the real program, where it is installed."""
    wrong = {".py": ("x = 1\n", "x = (1\n"), ".ts": ("let x = 1;\n", "let x = ;\n"), ".c": ("int x;\n", "int x\n"),
             ".h": ("int x;\n", "int x(;\n")}  # fmt: skip
    ending = next((ending for ending in spec.languages if ending in wrong), "")
    if not ending or shutil.which(spec.command[0], path=os.environ["PATH"]) is None:
        pytest.skip(f"{spec.name} is not installed")
    servers = bench.open_specs(spec)
    before, after = wrong[ending]
    bench.file(f"a{ending}", before)
    await bench.read(f"a{ending}")
    await until(lambda: servers.servers[0].state in ("ready", "failed"))
    text = await bench.edit(f"a{ending}", before.strip(), after.strip())
    server = servers.servers[0]
    await until(lambda: "New errors" in text or server.late or not server.running)
    assert "New errors" in text or server.late


async def test_a_file_that_is_read_while_the_servers_close_starts_none(bench):
    servers = bench.open()
    path = bench.file("a.toy", "one\n")
    servers.note_read(path, "one\n")  # as a thread of a tool does it
    await servers.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert servers.servers[0].state == "waiting"
    assert servers._worker._process is None
