"""K3: importing litellm makes no network request, reads no .env, prints nothing, and registers no
callback.
"""

import json
import subprocess
import sys

AUDITED = """
import json, sys
seen = []
def hook(event, arguments):
    if event in ("socket.getaddrinfo", "socket.connect", "socket.gethostbyname", "subprocess.Popen", "os.system"):
        seen.append([event, str(arguments)])
    if event == "open" and str(arguments[0]).endswith(".env"):
        seen.append([event, str(arguments[0])])
sys.addaudithook(hook)
from ouro.llm.litellm_worker import load_litellm
litellm = load_litellm()
import os, time
calls = [litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm._async_success_callback]
print(json.dumps({"seen": seen, "callbacks": calls, "key": os.environ.get("OPENAI_API_KEY"), "base": litellm.api_base}))
"""


def test_k3_litellm_import_prints_nothing_and_reads_no_env(tmp_path):
    (tmp_path / ".env").write_text(
        "OPENAI_API_KEY=sk-from-a-file\nOPENAI_API_BASE=http://evil.invalid\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", AUDITED], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert json.loads(done.stdout) == {
        "seen": [],
        "callbacks": [[], [], [], []],
        "key": None,
        "base": None,
    }


LOADED = """
import sys
import ouro.llm.openai, ouro.llm.anthropic, ouro.llm.litellm_model, ouro.llm.model_call, ouro.llm.model_call
heavy = {"httpx", "litellm", "openai", "yaml", "rich", "textual", "sqlite3", "pydantic", "aiohttp"}
print(sorted(heavy & sys.modules.keys()))
"""


def test_k3_wires_load_no_unneeded_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


ASKED = """
import asyncio, sys
from contextlib import aclosing
from ouro.llm import Endpoint
from ouro.llm import ModelSpec
from ouro.llm.openai import OpenAIWire
from ouro.messages import user
async def run():
    model = OpenAIWire(ModelSpec("openai/x"), Endpoint(sys.argv[1]))
    async with aclosing(model.stream([user("hi")])) as chunks:
        async for _ in chunks:
            pass
    await model.close()
asyncio.run(run())
print(sorted({"rich", "click", "pygments", "litellm"} & sys.modules.keys()))
"""


def test_k3_a_request_loads_no_command_line_of_httpx(tmp_path, model_server):
    model_server.script(["ok"])
    command = [sys.executable, "-c", ASKED, model_server.openai_url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
