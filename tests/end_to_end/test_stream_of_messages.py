"""`ouro -p --input stream-json`, the real program, as a program that keeps it open."""

import json
import subprocess

from fakes.model_server import Call, Reply

FLAGS = ("-p", "--input", "stream-json", "--output", "stream-json", "--trust", "--mode", "auto")


class Stream:
    """The program with its input open."""

    def __init__(self, ouro):
        self._process = ouro.begin(*FLAGS, stdin=subprocess.PIPE)

    def say(self, *lines):
        self._process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self._process.stdin.flush()

    def until(self, kind):
        """The next line of this type."""
        for line in self._process.stdout:
            if (data := json.loads(line))["type"] == kind:
                return data
        raise AssertionError(self._process.stderr.read())

    def end(self):
        self._process.stdin.close()
        return self._process.wait()


def test_each_job_that_ends_wakes_the_idle_agent_and_has_a_result(ouro):
    calls = [
        Call("shell", {"command": f"until [ -e go{n} ]; do sleep 0.1; done", "background": True})
        for n in (1, 2)
    ]
    ouro.server.script([Reply(calls=calls), "Launched.", "The first has ended.", "Both have."])
    stream = Stream(ouro)
    stream.say({"type": "user", "text": "go"})
    assert stream.until("result")["result"] == "Launched."
    for name, answer in (("go1", "The first has ended."), ("go2", "Both have.")):
        (ouro.folder / name).touch()
        result = stream.until("result")
        assert (result["result"], result["turns"]) == (answer, 1)
    assert "job_2 ended" in str(ouro.server.requests[-1].messages)
    assert stream.end() == 0


def test_an_interrupt_right_after_a_message_ends_its_turn(ouro):
    ouro.server.script([Reply("word " * 3000, rate=50), "Next."])
    stream = Stream(ouro)
    stream.say({"type": "user", "text": "go"}, {"type": "interrupt"})
    assert stream.until("result")["outcome"] == "interrupted"
    ouro.server.script(["Next."])
    stream.say({"type": "user", "text": "again"})
    assert stream.until("result")["result"] == "Next."
    assert stream.end() == 0
