"""X4: shell lines that search for keys in their own environment and in that of ouro."""

import os
import subprocess

import pytest
from fakes.tool_benches import ShellBench
from msgspec.structs import replace

from ouro.safety import Confinement

KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-aaaaaaaaaaaaaaaaaaaaaaaa",
    "OPENAI_API_KEY": "sk-bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "GITHUB_TOKEN": "ghp_cccccccccccccccccccccccccccccccccccc",
    "UNSUSPICIOUS": "sk-dddddddddddddddddddddddddddd",
    "MY_PASSWORD": "eeeeeeeeeeee",
}


@pytest.mark.parametrize(
    "line",
    [
        "env",
        "export -p",
        "cat /proc/self/environ",
        "cat /proc/$$/environ | tr '\\0' '\\n'",
        "ps eww $$",
    ],
)
async def test_x4_no_key_reaches_a_child(tmp_path, line):
    result = await ShellBench(tmp_path, **KEYS).run(line)
    assert not [name for name, value in KEYS.items() if value in result.text]


async def test_x4_no_key_reaches_a_background_job(tmp_path):
    bench = ShellBench(tmp_path, **KEYS)
    await bench.run("env", background=True)
    await bench.jobs.find("job_1").wait(5)
    await bench.jobs.close()
    assert not [
        name for name, value in KEYS.items() if value in bench.jobs.find("job_1").report().text
    ]


async def test_x4_a_key_in_long_output_is_not_in_the_file_either(tmp_path):
    bench = ShellBench(tmp_path)
    bench.jobs._mask = lambda text: text.replace("our-own-key", "[secret]")
    await bench.run("for i in $(seq 20000); do echo our-own-key; done")
    (spooled,) = bench.spool.iterdir()
    assert b"our-own-key" not in spooled.read_bytes()


async def test_x4_confined_command_cannot_read_the_environment_of_ouro(tmp_path):
    bench = ShellBench(tmp_path)
    bench.shell.confinement = confinement = Confinement(bench.root, tmp_path / "state")
    if confinement.chosen().sandbox.tier != "bubblewrap":
        pytest.skip("as root, only bubblewrap hides the processes of the machine")
    # The environment of a running ouro cannot be changed: another process has a key in it.
    parent = subprocess.Popen(["sleep", "60"], env={**os.environ, **KEYS})
    try:
        bench.context = replace(bench.context, limits="read")
        result = await bench.run(
            f"cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/{parent.pid}/environ; ps eww"
        )
    finally:
        parent.kill()
        parent.wait()
    assert "PATH=" in result.text
    assert not [name for name, value in KEYS.items() if value in result.text]
