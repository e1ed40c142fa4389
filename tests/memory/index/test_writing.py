"""Words of every script are found by their parts; the snippet shows the match."""

import pytest
from fakes.stored_sessions import StoredSession

from ouro.memory.index import (
    Index,
    Search,
    SearchFilter,
    Sources,
    findable,
    parse_query,
    search_sessions,
)
from ouro.messages import assistant, user

SAID = {
    "chinese": "生产环境的数据库连接池已经用完，请先重启网关。",
    "japanese": "本番環境のデータベースは夜間に必ずバックアップを取ってください。",
    "korean": "운영 서버의 데이터베이스를 매일 밤 백업해야 합니다.",
    "thai": "ฐานข้อมูลหลักต้องสำรองทุกคืนก่อนเที่ยงคืน",
    "mixed": "我们用Redis缓存用户会话，TTL是十分钟。",
    "hindi": "मुख्य तालिका हर रात सहेजी जाती है",
    "accents": "The menu of the café says naïve things about Ångström.",
    "camel": "Call getUserName before parseHTTPResponse in the OrderService of GitHub.",
    "snake": "MAX_RETRY_COUNT and load_user_profile live in src/billing/retry_policy.py now.",
    "emoji": "The deploy went fine ✔️done 🚀 and the sparrow sings ❤️.",
    "plain": "Rates are limited to forty a minute.",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """All texts in one session, in unrelated turns."""
    place = tmp_path_factory.mktemp("said")
    talk = StoredSession(place / "sessions")
    for text in SAID.values():
        talk.say(user(text), assistant("Ok."))
    talk.end()
    made = Index(place / "index.db")
    made.update(Sources(place / "sessions"))
    yield made
    made.close()


def best(index, query) -> str:
    hits = Search(index).find(query, 1, SearchFilter(kinds=("message",)))
    return next((name for name, text in SAID.items() if hits and hits[0].text == text), "")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("数据库", "chinese"),
        ("连接池用完了怎么办？", "chinese"),
        ("怎么重启网关", "chinese"),
        ("データベースのバックアップはいつですか", "japanese"),
        ("夜間", "japanese"),
        ("데이터베이스 백업", "korean"),
        ("데이터", "korean"),
        ("ข้อมูล", "thai"),
        ("สำรองฐานข้อมูลเมื่อไร", "thai"),
        ("Redis TTL", "mixed"),
        ("缓存", "mixed"),
        ("how long does 缓存 keep 用户会话", "mixed"),
        ("तालिका", "hindi"),
        ("cafe", "accents"),
        ("CAFÉ naive", "accents"),
        ("cafe\u0301", "accents"),
        ("angstrom", "accents"),
        ("getUserName", "camel"),
        ("the name of a user", "camel"),
        ("http response", "camel"),
        ("github", "camel"),
        ("order service", "camel"),
        ("retry count", "snake"),
        ("load_user_profile", "snake"),
        ("billing", "snake"),
        ("src/billing/retry_policy.py", "snake"),
        ("done", "emoji"),
        ("🚀 sparrow ❤️", "emoji"),
        ("forty", "plain"),
        ("🚀", ""),
        ("桌子", ""),
        ("据连", ""),
    ],
)
def test_query_in_any_script_finds_its_message(index, query, name):
    assert best(index, query) == name


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("连接池", "数据库连接池已经"),
        ("バックアッ", "必ずバックアップを取って"),
        ("데이터베이스", "데이터베이스를"),
        ("ข้อมูลหลัก", "ฐานข้อมูลหลัก"),
        ("redis 缓存", "Redis缓存"),
        ("user name", "getUserName"),
        ("cafe", "café"),
        ("forty a min", "forty a minute"),
    ],
)
def test_snippet_shows_the_matching_part(index, words, part):
    (hit,) = search_sessions(index, words)
    assert part in hit.snippet
    assert len(hit.snippet) < 130


def test_plain_latin_text_is_indexed_unchanged():
    for name in ("snake", "emoji", "plain", "hindi"):
        assert findable(SAID[name]) == SAID[name]
    assert findable("x" * 40 + "aB" * 40) == "x" * 40 + "aB" * 40  # data, not a name


def test_function_words_in_cjk_queries_are_ignored():
    assert parse_query("我们的数据库在哪").words == (("数据",), ("据库",))
    assert parse_query("バックアップを取ってください").words[-1] == ("取",)
    assert parse_query("ください").words == (("くだ",), ("ださ",), ("さい",))


def test_indexed_message_can_be_removed_completely(tmp_path):
    """The full-text index follows its table, although it indexes a changed form of the text."""
    talk = StoredSession(tmp_path / "sessions")
    talk.say(user(SAID["chinese"]), user(SAID["camel"]))
    talk.end()
    index = Index(tmp_path / "index.db")
    index.update(Sources(tmp_path / "sessions"))
    next((tmp_path / "sessions").glob("*/session.yaml")).unlink()
    index.update(Sources(tmp_path / "sessions"))
    with index.reading() as database:
        database.execute(
            "CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, messages_words, 'row')"
        )
        assert database.execute("SELECT count(*) FROM temp.terms").fetchone() == (0,)
    index.close()
