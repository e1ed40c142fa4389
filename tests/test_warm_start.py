import os
import subprocess
import sys

from ouro import __version__
from ouro.batch.attempt import make_server
from ouro.warm_start import MODULES

HEAVY = {"litellm", "textual", "prompt_toolkit", "sqlite3", "numpy", "kingfisher_sdk"}


def test_a_forked_process_is_the_program_ouro(tmp_path):
    server = make_server()
    try:
        with (tmp_path / "out").open("wb") as out:
            server.start(
                ["--version"], tmp_path, os.environ, output=out.fileno(), errors=out.fileno()
            ).wait()
    finally:
        server.close()
    assert (tmp_path / "out").read_text() == f"ouro {__version__}\n"


def test_what_is_loaded_before_a_fork_starts_no_thread_and_is_not_heavy():
    """A thread does not survive a fork: a lock that it holds then would never be released."""
    code = f"import sys, threading\nfor name in {MODULES}: __import__(name)\n"
    code += "print(threading.active_count(), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    threads, *modules = done.stdout.split()
    assert threads == "1"
    assert HEAVY.isdisjoint(modules)
