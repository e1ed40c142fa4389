"""A key of a command that expires in the middle of a session."""

import yaml
from fakes.model_server import Call, Reply, failure

FIRST, SECOND = "zq-first-key-7Kd", "zq-second-key-9Xw"


def test_a_key_that_was_read_again_is_masked_in_the_session(ouro):
    script = ouro.folder / "key"
    script.write_text(f"#!/bin/sh\n[ -e {ouro.home}/asked ] && echo {SECOND} || echo {FIRST}\n"
                      f"touch {ouro.home}/asked\n")  # fmt: skip
    script.chmod(0o755)
    file = ouro.home / "models.yaml"
    models = yaml.safe_load(file.read_text())
    entry = models["models"]["openai/test-model"]
    del entry["api_key"]
    entry["api_key_command"] = str(script)
    file.write_text(yaml.safe_dump(models))
    show = Reply(calls=[Call("shell", {"command": f"echo {SECOND}"})])
    ouro.server.script([failure(401, "token expired"), show, "done"])
    done = ouro.headless("-p", "go", "--mode", "auto")
    assert (done.code, done.out.strip()) == (0, "done"), done.err
    keys = [request.headers["authorization"] for request in ouro.server.requests]
    assert keys == [f"Bearer {FIRST}", f"Bearer {SECOND}", f"Bearer {SECOND}"]
    [session] = (ouro.home / "sessions").glob("*/session.yaml")
    stored = session.read_text()
    assert "echo [secret:" in stored
    assert SECOND not in stored
