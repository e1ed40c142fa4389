from html.parser import HTMLParser

from fakes.stored_sessions import everything, hostile, whole

from ouro.commands.export import document
from ouro.memory.backend import MessageRecord
from ouro.messages import assistant, user

VOID = {"meta", "img", "br", "hr"}


class Page(HTMLParser):
    """The elements of a page; fails at a closing tag that does not match the last open one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {(name, value) for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def values(self, name: str) -> set[str]:
        return {value for each, value in self.attributes if each == name}


def page(session) -> Page:
    return Page("".join(document(session, "html")))


def test_page_contains_all_messages_and_tool_results():
    found = page(everything())
    everywhere = "".join(text for texts in found.texts.values() for text in texts)

    for words in (
        "A *title*", "Mend *it*", "Looking.", "Hm.", "Today is Saturday.", "pytest", "bad", "-a", "+b", "☑ Test",
        "Removed by a rewind", "No, like this", "Like that", "They mended it.", "not answered", "[exit code 1]",
    ):  # fmt: skip
        assert words in everywhere
    assert found.open == []
    assert {"added-line", "removed-line", "place"} <= found.values("class")


def test_contents_link_to_user_messages_that_were_not_undone():
    found = page(everything())
    assert found.texts["a"] == ["Mend *it* - now", "Like that", "Thanks"]
    assert {value[1:] for value in found.values("href")} <= found.values("id")


def test_hostile_session_gives_a_well_formed_page_without_scripts():
    text = "".join(document(hostile(), "html"))
    found = Page(text)

    assert found.open == []
    assert not found.tags & {"script", "iframe", "object", "embed", "link", "base", "form", "svg"}
    assert len(found.texts["style"]) == 1
    assert not [
        name
        for name, _ in found.attributes
        if name.startswith("on") or name in ("style", "srcdoc", "action")
    ]
    assert all(value.startswith("data:image/png;base64,") for value in found.values("src"))
    assert all(value.startswith("#m") for value in found.values("href"))
    assert "default-src 'none'" in next(
        value for value in found.values("content") if "src" in value
    )
    assert not set("\x1b\u202e\u2066\U000e0041") & set(text)
    assert "the end" in "".join(found.texts["div"])


def test_links_are_kept_and_remote_pictures_are_not_loaded():
    found = page(
        whole(
            MessageRecord(
                1, "", assistant("[docs](https://example.org/a?b=1) ![p](https://x.example/p.png)")
            )
        )
    )
    assert found.values("href") == {"https://example.org/a?b=1"}
    assert found.values("rel") == {"noopener noreferrer nofollow"}
    assert found.texts["i"] == ["[picture: p https://x.example/p.png]"]
    assert "img" not in found.tags


def test_a_name_in_code_keeps_its_underscores():
    found = page(whole(MessageRecord(1, "", assistant("See __init__.py."))))
    assert "See __init__.py." in found.texts["p"]


def test_code_of_a_known_language_is_highlighted():
    text = "".join(
        document(
            whole(
                MessageRecord(1, "", assistant("```python\nimport os\n```\n```nonsense\n<b>\n```"))
            ),
            "html",
        )
    )
    assert '<span class="kn">import</span>' in text
    assert "<pre>&lt;b&gt;</pre>" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_user_text_is_kept_verbatim():
    found = page(whole(MessageRecord(1, "", user("# no heading\n  two  blanks"))))
    assert "# no heading\n  two  blanks" in found.texts["div"]
    assert "h3" not in found.tags


def test_oversized_text_is_not_rendered_as_markdown():
    text = "".join(
        document(whole(MessageRecord(1, "", assistant("*x* <b>" + "y" * 300_000))), "html")
    )
    assert "<pre>*x* &lt;b&gt;yyy" in text
