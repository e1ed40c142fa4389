"""What a refusal says, and what changes in the request: the one table that all wires use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ouro.errors import ProviderAnswer
from ouro.llm.request_shape import EFFORT_FIELDS, NESTED
from ouro.llm.server_facts import ESSENTIAL, LIMIT_NAMES, ServerFacts
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary

MIN_ROOM = 0.25
"""An answer is shortened to the room that is left if that is at least this share of what was
wanted; otherwise the request is too long.
"""
MIN_LIMIT = 16
"""Smaller numbers in a refusal are no limit of an answer."""
SCALE = ("off", "none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts, from the least to the most; `default` counts as `medium`."""
STATUSES = (400, 404, 405, 413, 415, 422, 500, 501)
"""The statuses with which servers refuse what they do not support."""

_NUMBER = late_pattern(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?![\w.]*\d)|(?<![\w.])\d+(?![.\d]*\d)")
_QUOTED = late_pattern(r"""["'`‘’“”]([a-z]{3,8})["'`‘’“”]""")
_EFFORT = late_pattern(r"effort|thinking[_ ]?level|reasoning[_ ]level")
_LIST_OF_VALUES = late_pattern(
    r"(?:supported values|must be|should be|one of|allowed|available|expected|choose|use)(.*)",
    re.DOTALL,
)
_UNSUPPORTED = late_pattern(
    r"unsupported|not supported|n't support|not support|unknown|unrecogni[sz]ed|unexpected|extra"
    r"|not permitted|not allowed|forbidden|invalid|deprecated|no such|instead|cannot|不支持|不能"
    r"|未知|無効|未対応|non support|nicht unterst|no compatible|no admit|no se admite|não suport"
    r"|не поддерж|неизвестн"
)
_SUPPORT = late_pattern(r"support|--jinja|mmproj|not allowed|not permitted|unknown (?:field|param)")
_OUTPUT = late_pattern(
    r"max_(?:completion_|output_|new_)?tokens|maxtokens|maxoutputtokens|(?:completion|output) tokens"
    r"|maximum tokens|最大输出|出力トークン"
)
_INPUT = late_pattern(
    r"input|prompt|messages?\b(?! *\[)|in the request|context|输入|上下文|入力|entrada|eingabe"
)
_PICTURE = late_pattern(
    r"image|imagen|imagem|immagin|picture|photo|vision|visual|multi-?modal|mmproj|bild(?:er|ern)?\b"
    r"|图片|图像|圖|视觉|画像|이미지|изображен"
)
_TEXT_ONLY = late_pattern(
    r"(?:must be|expected|should be|valid|not|only)\b.{0,30}\b(?:string|str|text)\b"
    r"|content[ _]?type|content part|invalid type: sequence"
)
_ONE_PICTURE = late_pattern(
    r"too (?:large|big|small|many)|exceed|size|dimension|pixel|resolution|corrupt|decod|damaged"
    r"|could not process|cannot process|unable to process|failed to (?:load|process|read)"
    r"|media[_ ]type|mime|invalid (?:image|base64)|malformed|format|过大|大きすぎ"
)
_THINKING_BACK = late_pattern(
    r"reasoning_content|reasoning_details|\breasoning\b field|both content and (?:thinking|reasoning)"
)
_NOT_TAKEN = late_pattern(
    r"unsupported|not supported|not support|unknown|unexpected|unrecogni[sz]ed|extra_forbidden"
    r"|not permitted|not allowed|cannot|不支持"
)
_SIGNATURE = late_pattern(
    r"signature|invalid_encrypted_content|encrypted[ _]content\W.{0,80}(?:verif|issued|decrypt"
    r"|expired|not valid|match|belong|caller)|'reasoning' was provided without"
    r"|item with id 'rs_|(?:redacted_)?thinking[`'\"]? (?:or [`'\"]?redacted_thinking[`'\"]? )?blocks?"
)
_STYLE = late_pattern(r"thinking|adaptive|budget_tokens|output_config|effort|display")
_ROLE = late_pattern(r"raise_exception|\brol(?:e|es|le|a)\b|角色|ロール|роль")
_SYSTEM = late_pattern(r"\b(system|developer)\b")
_ALTERNATE = late_pattern(r"\balternat|consecutive|两条连续|交替|交互")
_TOOLS = late_pattern(
    r"\btools?\b|tool[_ -](?:use|calls?|calling|choice)|function[_ -]call|functions?\b|--jinja|工具"
    r"|jinja|chat[_ ]template|函数调用|ツール|herramienta|ferramenta|outils?\b|werkzeug|инструмент"
)
_SCHEMA = late_pattern(
    r"schema|parameters|anyof|oneof|\$ref|additionalproperties|exclusiveminimum|json_schema"
)
_CALL_ID = late_pattern(
    r"tool_?call_?id|tool_use_id|tool call id|tool_calls?\b.{0,20}\bid\b|call_id"
)
_LENGTH = late_pattern(r"(?:length|long|characters|chars|max\w*)\D{0,30}?(\d{1,3})\b")
_CONTENT = late_pattern(r"content")
_PART_OF_MESSAGE = late_pattern(r"messages?[.\[]|tool_?call_?id|tool_use_id|tool_result")
_NO_TOOLS = late_pattern(
    rf"{_UNSUPPORTED.pattern}|--enable-auto-tool-choice|--jinja|requires|no endpoints|jinja"
    r"|only [\w ]{0,20}supported"
)
_PART_OF_CALL = late_pattern(
    r"tool_?(?:use|result|call)|tool[ -](?:use|call|result|response|output|message)"
    r"|function[_ -]?(?:call|response|result|output)|\btools? (?:ids?|messages?)\b"
    r"|role\W{0,3}(?:is |of )?\W?(?:tool|function)\b|工具(?:调用|消息|结果)|ツール(?:呼び出し|結果)"
)
_UNPAIRED = late_pattern(
    r"without|did not have|do(?:es)? not have|must have|must be (?:a response|followed|preceded)"
    r"|follow|correspond|preced|immediately (?:before|after)|number of|insufficient|unmatched|orphan"
    r"|match|missing|not (?:be )?found|no tool (?:call|output)|no function|unexpected|expected"
    r"|对应|匹配|缺少|之后|紧跟|找不到|未找到|対応|見つかり"
)
_RESULT = late_pattern(r"tool (?:message|result|response)|function[_ ]?response|role\W{0,3}tool\b")
_NAME = late_pattern(
    r"\bname\b.{0,60}(?:empty|required|missing|must|field)|(?:have|missing|requires?) .{0,12}\bname\b"
)
_OTHER_THAN_CALLS = (_THINKING_BACK, _SIGNATURE, _SCHEMA, _NAME)
_EMPTY_CONTENT = late_pattern(r"\bnull\b|none|nil\b|required|missing|string|empty|必填|不能为空")
_RESPONSES = late_pattern(r"/?(?:v1)?/responses\b|responses api", re.IGNORECASE)
_ENGLISH_FIELDS = frozenset(
    "store include stream system thinking reasoning user text stop metadata display strict n".split()
)
"""Fields whose names are also words of a sentence: only a quoted or labelled one names the field."""


class Refused(NamedTuple):
    """A request that was refused, and what is known of its server."""

    answer: ProviderAnswer
    body: Mapping[str, Any]
    facts: ServerFacts
    has_images: bool = False
    thinking_styles: tuple[str, ...] = ()
    """The ways to ask for thinking that are left; the first one was used."""
    other_wire: str = ""
    """The wire that can be used instead."""
    limit_names: tuple[str, ...] = ()
    """The names that the limit of an answer may have."""

    @property
    def words(self) -> str:
        return f"{self.answer.text} {self.answer.param}".lower()

    @property
    def numbers(self) -> list[int]:
        return numbers_in(self.answer.text)

    @property
    def limit(self) -> int:
        """The longest answer that the request allows."""
        found = (self.body.get(name) for name in LIMIT_NAMES)
        return next((value for value in found if isinstance(value, int)), 0)

    def names(self, field: str) -> bool:
        """Whether the refusal names a field of the request."""
        param = self.answer.param.lower()
        if param and re.search(rf"(?<!\w){re.escape(field)}(?!\w)", param):
            return True
        if field not in _ENGLISH_FIELDS:
            return re.search(rf"(?<!\w){re.escape(field)}(?!\w)", self.words) is not None
        label = rf"(?:param\w*|field|argument|property|key|input)s?[:\s]+{field}\b"
        return re.search(rf"[\"'`.]{field}[\"'`]|\b{field}:|{label}", self.words) is not None


Changes = Mapping[str, str]


class RefusalRule(NamedTuple):
    """One kind of refusal. Its example and counterexample are tested."""

    name: str
    speaks_of: tuple[re.Pattern[str], ...]
    """What the refusal has to speak of, each of them."""
    find: Callable[[Refused], Changes]
    """The facts that the refusal teaches; none if it is about something else."""
    example: str
    counterexample: str

    def apply(self, refused: Refused) -> Changes:
        """The facts that are new; none if the refusal is about something else."""
        words = refused.words
        if not all(pattern.search(words) for pattern in self.speaks_of):
            return {}
        changes = self.find(refused)
        return {
            key: value for key, value in changes.items() if not refused.facts.is_known(key, value)
        }


def numbers_in(text: str) -> list[int]:
    """The whole numbers in a refusal."""
    return [int(found.replace(",", "")) for found in _NUMBER.findall(text) if len(found) < 12]


def find_changes(refused: Refused, rules: Iterable[RefusalRule] | None = None) -> Changes:
    """What to change after a refusal, by the first rule that applies and was not tried yet."""
    if refused.answer.status not in STATUSES:
        return {}
    rules = rules or RULES
    if refused.answer.status >= 500 and not _SUPPORT.search(refused.words):
        rules = RULES_OF_SIZE  # any other word may come from a fault that has nothing to do with it
    for rule in rules:
        if changes := rule.apply(refused):
            return changes
    return {}


def refuses_signature(refused: Refused) -> bool:
    """Whether a refusal is about thinking that was sent back with its signature."""
    return bool(_SIGNATURE.search(refused.words))


def speaks_of_calls(refused: Refused) -> bool:
    """Whether a refusal speaks of calls or results in the messages, in whatever words."""
    return refused.answer.status in (400, 422) and bool(_PART_OF_CALL.search(refused.words))


def refuses_calls(refused: Refused) -> bool:
    """Whether a refusal is about calls and results in the messages that do not belong together.

    Without it each later message of the session is refused, too: the calls are in the history.
    """
    words = refused.words
    is_other = any(pattern.search(words) for pattern in _OTHER_THAN_CALLS)
    if refused.answer.status not in (400, 404, 422) or is_other or "support" in words:
        return False
    return bool(_PART_OF_CALL.search(words) and _UNPAIRED.search(words))


def refuses_one_picture(refused: Refused) -> bool:
    """Whether a refusal is about a picture, not about pictures."""
    return bool(
        refused.has_images
        and _PICTURE.search(refused.words)
        and _ONE_PICTURE.search(refused.words)
        and not re.search(
            r"content[ _]?type|unknown variant|not support|n't support|token", refused.words
        )
    )


def _find_wire(refused: Refused) -> Changes:
    """Another protocol, for a model that does not work with this one.

    Without it each turn with tools fails for OpenAI's current models on chat completions.
    """
    return {"wire": refused.other_wire} if refused.other_wire else {}


def _find_effort(refused: Refused) -> Changes:
    """The nearest effort that the refusal names, or the field left out.

    Without it a model with other levels than ours does not answer at all.
    """
    words, ((owner, field), sent) = refused.words, _find_sent_effort(refused.body)
    is_value_named = f"'{sent}'" in re.sub(r"[\"`‘’“”]", "'", words)
    if not is_value_named and not _EFFORT.search(words):
        return {}
    tried = {sent, *refused.facts.keys("effort")}
    named = [name for name in _list_efforts(words) if name not in tried]
    if not sent:
        return {"effort.unset": named[0]} if named == ["none"] else {}
    if named:
        return {f"effort.{sent}": min(named, key=lambda name: _effort_distance(name, sent))}
    if owner == "output_config" or not _UNSUPPORTED.search(words):
        return {}
    if is_value_named:
        return {f"effort.{sent}": _next_effort(sent)}
    return {f"without.{owner or field}": ""}


def _find_sent_effort(body: Mapping[str, Any]) -> tuple[tuple[str, str], str]:
    """Where the effort is in the body, and the effort; empty if none was sent."""
    for path in EFFORT_FIELDS:
        owner = {"": body}.get(path[0], dictionary(body.get(path[0])))
        value = owner.get(path[1])
        if isinstance(value, str):
            return path, value
    return EFFORT_FIELDS[0], ""


def _list_efforts(words: str) -> list[str]:
    """The efforts that a refusal names: quoted ones, or words after `must be` and the like."""
    known = {*SCALE, "default"}
    quoted = [word for word in _QUOTED.findall(words) if word in known]
    if len(quoted) > 1 or (quoted and "to" in words):
        return list(dict.fromkeys(quoted))
    listed = _LIST_OF_VALUES.search(words)
    bare = re.findall(r"[a-z]+", listed[1]) if listed else []
    return list(dict.fromkeys([*quoted, *(word for word in bare if word in known)]))


def _effort_distance(name: str, sent: str) -> tuple[int, int]:
    """How far an effort is from the one that was sent; of two equal ones the lesser comes first."""
    rank = SCALE.index("medium" if name == "default" else name)
    wanted = SCALE.index(sent) if sent in SCALE else SCALE.index("medium")
    return abs(rank - wanted), rank


def _next_effort(sent: str) -> str:
    """The next effort without a hint: more for the least ones, otherwise less; then the field is
    left out.
    """
    ladder = ("none", "minimal", "low") if sent in ("none", "minimal") else SCALE[:2:-1]
    rest = ladder[ladder.index(sent) + 1 :] if sent in ladder else ()
    return next(iter(rest), "")


def _find_room(refused: Refused) -> Changes:
    """A window that holds the messages, but not the whole answer that was asked for."""
    limit, numbers = refused.limit, {number for number in refused.numbers if number > 99}
    pairs = itertools.permutations(sorted(numbers, reverse=True), 2)
    for window, size in pairs:
        room = window - size
        is_sum = not numbers.isdisjoint({limit, size + limit})
        if is_sum and limit * MIN_ROOM <= room < limit:
            return {"window": str(window), "max_output": str(room)}
    return {}


def _find_max_output(refused: Refused) -> Changes:
    """A smaller limit of an answer: the largest number in the refusal below the one that was sent.

    The number that was sent has to stand there, or nothing about the input: the sum of both is a
    question of the window.
    """
    limit, words, numbers = refused.limit, refused.words, refused.numbers
    smaller = [number for number in numbers if MIN_LIMIT <= number < limit]
    is_about_answer = limit in numbers or not _INPUT.search(_without_misleading_names(words))
    is_sum = any(number > limit for number in numbers)
    return {"max_output": str(max(smaller))} if smaller and is_about_answer and not is_sum else {}


def _without_misleading_names(words: str) -> str:
    """The words without names that contain `input` or `context` but speak of neither."""
    return (
        words.replace("context_window", "")
        .replace("invalid_request", "")
        .replace("input_value", "")
    )


def _find_output_limit(refused: Refused) -> Changes:
    """The other name of the limit; servers with one of the two names refuse the other one."""
    sent = refused.body.keys() & set(refused.limit_names)
    others = sorted(set(refused.limit_names) - sent)
    if not sent or not others:
        return {}
    is_refused = any(map(refused.names, sent)) and _UNSUPPORTED.search(refused.words)
    if is_refused or refused.names(others[0]):
        return {"output_limit": others[0]}
    return {}


def _find_images(refused: Refused) -> Changes:
    """Descriptions instead of pictures.

    Without it each later message of the session is refused, too: the picture is in the history.
    """
    if not refused.has_images or refuses_one_picture(refused):
        return {}
    is_named = _PICTURE.search(refused.words) or _TEXT_ONLY.search(refused.words)
    return {"images": "no"} if is_named or refused.answer.status == 415 else {}


def _find_thinking_back(refused: Refused) -> Changes:
    """Thinking sent back with calls, then with each answer; or not any more.

    Without it the first request after a call is refused by the thinking models of some vendors.
    """
    now = refused.facts.get("thinking_back")
    if now in ("yes", "all") and _NOT_TAKEN.search(refused.words):
        return {"thinking_back": "no"}
    is_wanted = re.search(
        r"must|miss|require|back|need|缺|必须|传|回传|manqu|falta|fehlt", refused.words
    )
    if not is_wanted or now == "all":
        return {}
    return {"thinking_back": "all" if now == "yes" else "yes"}


def _find_style(refused: Refused) -> Changes:
    """The next way to ask for thinking."""
    is_asked = "thinking" in refused.body or "output_config" in refused.body
    if not is_asked or len(refused.thinking_styles) < 2:
        return {}
    return {"thinking_style": refused.thinking_styles[1]}


def _find_system_role(refused: Refused) -> Changes:
    """The system prompt as a message of the user, or messages joined.

    Templates of local models know only two roles that alternate.
    """
    now = refused.facts.get("system_role") or "system"
    if _ALTERNATE.search(refused.words):
        return {"roles": "joined"}
    named = set(_SYSTEM.findall(refused.words))
    if now not in named:
        return {}
    return {"system_role": "system" if now == "developer" else "user"}


def _find_tool_schema(refused: Refused) -> Changes:
    """Schemas without what only some servers understand.

    Without it one schema, also of an MCP server, makes each request fail.
    """
    about_format = "response_format" in refused.body and refused.names("response_format")
    if about_format or not refused.body.get("tools"):
        return {}
    return {"tool_schema": "simple"}


def _find_tools(refused: Refused) -> Changes:
    """Tools described in the prompt.

    Without it models of local servers that have no template for tools cannot be used.
    """
    if not refused.body.get("tools"):
        return {}
    if _PART_OF_MESSAGE.search(refused.words) or refuses_calls(refused):
        return {}
    return {"tools": "text"}


def _find_call_ids(refused: Refused) -> Changes:
    """Ids of calls with the length that the refusal names: another model has made the old ones."""
    lengths = [int(found) for found in _LENGTH.findall(refused.words)]
    fitting = [length for length in lengths if 6 <= length <= 64]
    return {"call_ids": str(min(fitting))} if fitting else {}


def _find_result_names(refused: Refused) -> Changes:
    """Results with the name of their tool: Gemini's format, and relays to it, need it."""
    messages = refused.body.get("messages") or ()
    is_unnamed = any(
        message.get("role") == "tool" and "name" not in message
        for message in map(dictionary, messages)
    )
    return {"result_names": "yes"} if is_unnamed else {}


def _find_empty_content(refused: Refused) -> Changes:
    """An empty text for a message that only has calls: some servers refuse null."""
    messages = refused.body.get("messages") or ()
    has_null = any(dictionary(message).get("content", "") is None for message in messages)
    return {"empty_content": "yes"} if has_null else {}


def _find_field(refused: Refused) -> Changes:
    """The optional field that is named first, or as the parameter; of whatever kind it is.

    It needs no list of fields: what a later version of ouro sends is left out in the same way.
    """
    optional = refused.body.keys() - ESSENTIAL
    owners = _find_containing_fields(refused)
    named = [*filter(refused.names, optional)] or [*filter(refused.names, NESTED)]
    dotted = [field for field in owners if "." in field]
    fields = dotted or sorted(named or owners, key=refused.words.find)
    param = refused.answer.param.partition(".")[0]
    if param in fields:
        return {f"without.{param}": ""}
    return {f"without.{field}": "" for field in fields[:1]}


def _find_containing_fields(refused: Refused) -> list[str]:
    """The optional fields that contain what is named, such as `include_usage`; `reasoning.summary`
    for a part of a field that is named with it.
    """
    found: list[str] = []
    for name in refused.body.keys() - ESSENTIAL:
        value = refused.body[name]
        inner = value if isinstance(value, dict | list) else ()
        for key in filter(lambda key: isinstance(key, str), inner):
            last = re.escape(key.rpartition(".")[2])
            if re.search(rf"{name}.{{0,3}}{last[:6]}", refused.words):
                found.append(f"{name}.{key}")
            elif "_" in key and re.search(last.replace("_", "[_ ]"), refused.words):
                found.append(name)
    return sorted(found)


RULES_OF_SIZE = (
    RefusalRule(
        "room",
        (_INPUT,),
        _find_room,
        "This model's maximum context length is 16384 tokens. However, you requested 17783 tokens"
        " (9591 in the messages, 8192 in the completion).",
        "This model's maximum context length is 8192 tokens, and your messages have 9000.",
    ),
    RefusalRule(
        "max_output",
        (_OUTPUT,),
        _find_max_output,
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens.",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 200.",
    ),
)
RULES = (
    RefusalRule(
        "wire",
        (_RESPONSES,),
        _find_wire,
        "Function tools with reasoning_effort are not supported. To use function tools, use"
        " /v1/responses or set reasoning_effort to 'none'.",
        "Invalid response format.",
    ),
    RefusalRule(
        "effort",
        (),
        _find_effort,
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported"
        " values are: 'low', 'medium', and 'high'.",
        "The request takes too much effort to parse.",
    ),
    *RULES_OF_SIZE,
    RefusalRule(
        "output_limit",
        (),
        _find_output_limit,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead.",
        "Your messages have too many tokens.",
    ),
    RefusalRule(
        "thinking_back",
        (_THINKING_BACK,),
        _find_thinking_back,
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Thinking is not available in your region.",
    ),
    RefusalRule(
        "images",
        (),
        _find_images,
        "messages[3]: unknown variant `image_url`, expected `text`",
        "Image dimensions exceed the maximum size: 8000 pixels.",
    ),
    RefusalRule(
        "thinking_style",
        (_STYLE,),
        _find_style,
        "thinking.type: Input should be 'enabled' or 'disabled'",
        "max_tokens must be greater than 0",
    ),
    RefusalRule(
        "call_ids",
        (_CALL_ID,),
        _find_call_ids,
        "Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9.",
        "Tool call id was not found.",
    ),
    RefusalRule(
        "result_names",
        (_RESULT, _NAME),
        _find_result_names,
        "Tool message must have a 'name' field.",
        "Tool message must have content.",
    ),
    RefusalRule(
        "empty_content",
        (_CONTENT, _EMPTY_CONTENT),
        _find_empty_content,
        "messages.2.content: Input should be a valid string, got null",
        "messages.2.role: Input should be a valid string",
    ),
    RefusalRule(
        "system_role",
        (_ROLE,),
        _find_system_role,
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "You have no role in this organization.",
    ),
    RefusalRule(
        "tool_schema",
        (_SCHEMA, _TOOLS),
        _find_tool_schema,
        "Invalid schema for function 'edit': 'oneOf' is not permitted in tools.",
        "Invalid JSON in the request.",
    ),
    RefusalRule(
        "field",
        (),
        _find_field,
        "Unknown field: stream_options",
        "Unknown model: gpt-9",
    ),
    RefusalRule(
        "tools",
        (_TOOLS, _NO_TOOLS),
        _find_tools,
        "registry.ollama.ai/library/codellama:latest does not support tools",
        "messages[4]: tool call id is not valid",
    ),
)
"""The table, in the order in which its rules are asked: the more exact ones come first."""
