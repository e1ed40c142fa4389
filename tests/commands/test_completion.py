"""`ouro completion`."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_completes_flags_and_subcommands(shell):
    done = subprocess.run(
        [sys.executable, "-m", "ouro", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )
    for word in ("resume", "max-cost", "sessions", "doctor", "export"):
        assert word in done.stdout


def test_bash_accepts_the_script_and_completes(tmp_path):
    script = subprocess.run(
        [sys.executable, "-m", "ouro", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ask = (
        f'{script}\nCOMP_WORDS=(ouro --max); COMP_CWORD=1; _shtab_ouro; printf "%s\\n"'
        ' "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) >= {"--max-turns", "--max-cost"}, done.stderr
