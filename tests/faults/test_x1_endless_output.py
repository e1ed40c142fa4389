"""X1: output that is endless, huge, binary, not UTF-8, or one line."""

import asyncio
import tracemalloc

from ouro.tools.output_capture import MAX_SPOOLED
from ouro.tools.truncate import MAX_SHOWN


async def test_x1_endless_output_is_bounded_in_memory_on_disk_and_for_the_model(bench):
    result = await bench.run("yes 'a line of output'", timeout=1)
    assert len(result.text) < MAX_SHOWN + 1000
    assert "bytes in all; its first 4 MB are in" in result.text
    (spooled,) = bench.spool.iterdir()
    assert spooled.stat().st_size == MAX_SPOOLED


async def test_x1_long_output_is_not_kept_in_memory(bench):
    await bench.run("true")
    tracemalloc.start()
    try:
        await bench.run("head -c 200000000 /dev/zero | tr '\\0' x", timeout=60)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000


async def test_x1_event_loop_stays_responsive_under_a_flood(bench):
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await bench.run("yes", timeout=0.5)
    counting.cancel()
    assert turns > 100


async def test_x1_reports_are_few_and_small_under_a_flood(bench):
    await bench.run("yes", timeout=0.5)
    assert len(bench.reported) < 20
    assert max(map(len, bench.reported)) <= 4096


async def test_x1_huge_line_keeps_head_and_tail(bench):
    result = await bench.run(
        "printf start; head -c 300000000 /dev/zero | tr '\\0' x; printf end", timeout=60
    )
    assert result.text.startswith("startxxx")
    assert "xxxend\n[exit code 0" in result.text
    assert "300,000,008 bytes in all" in result.text


async def test_x1_binary_output_is_not_shown(bench):
    result = await bench.run("printf 'a\\0b'; head -c 1000 /dev/urandom")
    assert result.text.startswith("[binary output, 1,003 bytes, is not shown]")


async def test_x1_invalid_utf8_is_readable(bench):
    damaged = await bench.run(r"printf 'd\303\251j\303\240 a\377b\303\n'")
    assert damaged.text.startswith("déjà a\ufffdb\ufffd\n")


async def test_x1_unwritable_spool_folder_is_reported(bench):
    bench.spool.write_text("in the way")
    assert "the rest could not be saved" in (await bench.run("seq 100000")).text
