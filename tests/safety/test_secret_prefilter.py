"""may_match returns True for every text that a rule of the scanner matches."""

import base64
import random
import re
import warnings
from importlib.metadata import version
from re import _constants as c
from re import _parser

import pytest
from kingfisher_sdk import Rules, Scanner

from ouro.safety import SecretMask, SecretScanner, secret_prefilter
from ouro.safety.secret_prefilter import may_match
from ouro.tools.truncate import shorten

PER_RULE = 8
POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "xdigit": "0-9a-fA-F",
    "space": r"\s",
    "word": r"\w",
}
CATEGORIES = {
    c.CATEGORY_DIGIT: "0123456789", c.CATEGORY_WORD: "abcXYZ019_", c.CATEGORY_SPACE: " ",
    c.CATEGORY_NOT_SPACE: "aX1-", c.CATEGORY_NOT_WORD: " -/", c.CATEGORY_NOT_DIGIT: "aX-",
}  # fmt: skip


def parse_pattern(pattern):
    """The syntax tree of a scanner pattern, which is in Rust's syntax."""
    pattern = re.sub(r"\[:(\w+):\]", lambda name: POSIX[name[1]], pattern.replace(r"\z", r"\Z"))
    pattern = re.sub(r"\(\?P?<(\w+)>", "(", pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _parser.parse(re.sub(r"\(\?[imsx-]+\)", "", pattern), re.DOTALL)


class Writer:
    """Writes random texts that match a pattern."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def text(self, tree):
        return "".join(self.item(kind, value) for kind, value in tree)

    def item(self, kind, value):
        if kind is c.LITERAL:
            return chr(value)
        if kind is c.NOT_LITERAL:
            return "x" if value != ord("x") else "y"
        if kind is c.ANY:
            return self.draw.choice("abc 1")
        if kind is c.IN:
            return self.of_class(value)
        if kind is c.BRANCH:
            return self.text(self.draw.choice(value[1]))
        if kind is c.SUBPATTERN:
            return self.text(value[3])
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            low, high, tree = value
            return "".join(
                self.text(tree) for _ in range(self.draw.choice((low, min(int(high), low + 3))))
            )
        if kind is c.ATOMIC_GROUP:
            return self.text(value)
        assert kind in (c.AT, c.ASSERT, c.ASSERT_NOT), kind
        return ""

    def of_class(self, items):
        if items[0][0] is c.NEGATE:
            taken = re.compile(f"[{''.join(self.pattern(item) for item in items[1:])}]")
            return self.draw.choice([sign for sign in "abcXYZ019_-/." if not taken.match(sign)])
        kind, value = self.draw.choice(items)
        if kind is c.LITERAL:
            return chr(value)
        if kind is c.RANGE:
            return chr(self.draw.randint(value[0], min(value[1], 126)))
        return self.draw.choice(CATEGORIES[value])

    @staticmethod
    def pattern(item):
        kind, value = item
        if kind is c.LITERAL:
            return re.escape(chr(value))
        if kind is c.RANGE:
            return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        return {c.CATEGORY_DIGIT: r"\d", c.CATEGORY_WORD: r"\w", c.CATEGORY_SPACE: r"\s"}[value]


def test_text_matching_a_scanner_rule_may_match():
    assert (
        version("kingfisher-secret-scanner") == secret_prefilter.RULES_VERSION
    )  # otherwise every text waits
    rules = Rules()
    writer, missed = Writer(7), []
    for rule in rules.metadata():
        tree = parse_pattern(rules.detail(rule["id"])["pattern"])
        texts = [writer.text(tree) for _ in range(PER_RULE)]
        missed += [(rule["id"], text) for text in texts if not may_match(f"so {text} it is")]
    assert missed == []


@pytest.mark.parametrize(
    "text",
    [
        "fix test_parser_v2_handles_utf8 in tests/llm/test_parser_v2.py",
        "what changed in 4f2a9c81d03be5571a6c9d0e8f7b6a5d4c3b2a19",
        "rename HttpStream2ConnectionPool to ConnectionPool",
        "see https://example.org/a/page-about-2026-plans",
        "/tmp/vlnlnwln/mobile/utils/projects",
        "session 81ebc31c-0d9f-4e1b-a7c2-0123456789ab",
        '<memory-db01da77acb78964 recalled="mem_1a2b3c4d:176a4753 command:176a4753">',
        '<memory-db01da77acb78964 recalled="command:176a4753">',
        (
            '<memory-db01da77acb78964 recalled="mem_00000007:b59c917e">\n| [mem_00000007] (user ·'
            " patterns) The queue listens on port 7.\n</memory-db01da77acb78964>"
        ),
        (
            '<memory-db01da77acb78964 changed="user 1873a138bfbb82b166c1a31bce9d47aa58815a59 repo'
            ' ~e3b0c44298fc">'
        ),
    ],
)
def test_common_words_skip_the_scanner(text):
    assert not may_match(text)


def test_a_secret_that_contains_a_mark_of_ouro_goes_to_the_scanner():
    assert may_match("x = mem_1a2b3c4d-R8x2")
    assert may_match("x = R8x2-mem_1a2b3c4d")


def test_encoded_and_long_texts_go_to_the_scanner():
    assert may_match(base64.b64encode(b"the key is ghp_0123456789abcdefghijABCDEFGHIJ").decode())
    assert may_match("a " * secret_prefilter.MAX_LENGTH)


def test_the_longest_tool_result_does_not_load_the_scanner():
    lines = "14:03 INFO worker-7f3a-b2c9-00d1 handled job 4711 of queue mail in 12 ms\n" * 1_000
    assert not may_match(shorten(lines, note="; all of it is in /tmp/outputs/output-1a2b3c4d.txt"))


def test_what_the_scanner_ignores_in_encoded_text_does_not_load_it():
    scanner = Scanner(Rules())
    token = b"ghp_R8x2LqZ7mVt4Kc9WnB3yHs6Jd1PfGa0EuTi5"
    texts = [base64.b64encode(before + token).decode() for before in (b"a ", b"\xff ", b"\xc3\xa4")]
    assert [bool(scanner.scan(f'x = "{text}"'.encode())) for text in texts] == [True, False, False]
    assert [may_match(f"so {text} it is") for text in texts] == [True, False, False]


def test_unknown_rules_version_sends_all_text_to_the_scanner(monkeypatch):
    secret_prefilter._knows_installed_scanner.cache_clear()
    monkeypatch.setattr(secret_prefilter, "RULES_VERSION", "0.0.1")
    assert may_match("hello")
    secret_prefilter._knows_installed_scanner.cache_clear()


def test_scanner_is_called_only_for_suspicious_text():
    class Counting(SecretScanner):
        asked = 0

        def prepare(self):
            """Do nothing."""

        def find(self, data, until, on_wait=None):
            self.asked += 1
            return []

    scanner = Counting()
    mask = SecretMask(scanner=scanner).mask
    mask("fix test_parser_v2_handles_utf8")
    assert scanner.asked == 0
    mask("it is polar_at_0123456789abcdefghij")
    assert scanner.asked == 1
