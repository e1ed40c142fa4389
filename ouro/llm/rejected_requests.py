"""Requests that a server rejects: one table for all wires says what a refusal teaches about it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ouro.errors import ProviderAnswer
from ouro.llm import rejection_words
from ouro.llm.portable import DETAILS, THINKING_NAMES
from ouro.llm.request_shape import EFFORT_FIELDS, OPTIONAL_AT_ANY_LEVEL
from ouro.llm.server_facts import ESSENTIAL, LIMIT_NAMES, ServerFacts
from ouro.utils.lenient_json import dictionary

MIN_ROOM = 0.25
"""An answer is shortened to the room that is left if that is at least this share of what was
wanted; otherwise the request is too long.
"""
MIN_LIMIT = 16
"""Smaller numbers in a refusal are no limit of an answer."""
SCALE = ("off", "none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts, from the least to the most; `default` counts as `medium`."""
_UPWARD = ("none", "minimal", "low")
"""The efforts that are tried in this order after the lowest ones."""
_DOWNWARD = ("max", "xhigh", "high", "medium", "low")
"""The efforts that are tried in this order after the others."""
STATUSES = (400, 404, 405, 413, 415, 422, 500, 501)
"""The statuses with which servers refuse what they do not support."""

_MIN_ID_LENGTH = 6
_MAX_ID_LENGTH = 64
"""The lengths that a server may demand for the ids of calls."""
_OTHER_THAN_CALLS = (
    rejection_words.ABOUT_SENT_THINKING,
    rejection_words.ABOUT_SIGNATURE,
    rejection_words.ABOUT_SCHEMA,
    rejection_words.WANTS_NAME,
)
"""Subjects with similar words as calls that do not belong together."""
_AMBIGUOUS_FIELDS = frozenset(
    "store include stream system thinking reasoning user text stop metadata display strict n".split()
)
"""Fields whose names are also words of a sentence: only a quoted or labelled one names the field."""


class Refused(NamedTuple):
    """A request that was refused, and the facts about its server."""

    answer: ProviderAnswer
    body: Mapping[str, Any]
    facts: ServerFacts
    has_images: bool = False
    """Whether images were sent."""
    thinking_styles: tuple[str, ...] = ()
    """The styles of thinking that were not refused yet; the first one was used."""
    other_wire: str = ""
    """The wire that can be used instead; empty if there is none."""
    limit_names: tuple[str, ...] = ()
    """The names that the limit of an answer may have."""

    @property
    def words(self) -> str:
        """The text of the refusal in lower case, with the name of the parameter."""
        return f"{self.answer.text} {self.answer.param}".lower()

    @property
    def numbers(self) -> list[int]:
        """The whole numbers in the text."""
        return numbers_in(self.answer.text)

    @property
    def limit(self) -> int:
        """The limit of an answer in the request; 0 if it has none."""
        values = (self.body.get(name) for name in LIMIT_NAMES)
        return next((value for value in values if isinstance(value, int)), 0)

    def names(self, field: str) -> bool:
        """Whether the refusal names a field of the request: in its `param`, or in its words. If the
        name of the field is also an ordinary word, it only counts in the words if it is in quotes,
        before a colon, or after a label such as `field`.
        """
        as_word = rf"(?<!\w){re.escape(field)}(?!\w)"
        param = self.answer.param.lower()
        if param and re.search(as_word, param):
            return True
        if field not in _AMBIGUOUS_FIELDS:
            return re.search(as_word, self.words) is not None
        label = rf"(?:param\w*|field|argument|property|key|input)s?[:\s]+{field}\b"
        return re.search(rf"[\"'`.]{field}[\"'`]|\b{field}:|{label}", self.words) is not None


Changes = Mapping[str, str]
"""Facts that a refusal teaches: their keys and values, as in `server_facts.py`."""


class RefusalRule(NamedTuple):
    """One kind of refusal. Its example and counterexample are tested."""

    name: str
    speaks_of: tuple[re.Pattern[str], ...]
    """The patterns that must all match the words of the refusal."""
    find: Callable[[Refused], Changes]
    """Returns the facts that the refusal teaches; empty if it is about something else."""
    example: str
    counterexample: str

    def apply(self, refused: Refused) -> Changes:
        """The facts that a refusal teaches, without those that are known already; empty if it is about
        something else.
        """
        words = refused.words
        if not all(pattern.search(words) for pattern in self.speaks_of):
            return {}
        changes = self.find(refused)
        return {
            key: value for key, value in changes.items() if not refused.facts.is_known(key, value)
        }


def numbers_in(text: str) -> list[int]:
    """The whole numbers in a refusal; longer ones are ids or times."""
    return [
        int(digits.replace(",", ""))
        for digits in rejection_words.WHOLE_NUMBER.findall(text)
        if len(digits) < 12
    ]


def find_changes(refused: Refused, rules: Iterable[RefusalRule] | None = None) -> Changes:
    """The new facts about the server that the first fitting rule reads in a refusal; empty if none.

    Args:
        rules: the rules to try, in order; None: all.
    """
    if refused.answer.status not in STATUSES:
        return {}
    rules = rules or RULES
    names_missing_support = rejection_words.NAMES_MISSING_SUPPORT.search(refused.words)
    if refused.answer.status >= 500 and not names_missing_support:
        rules = RULES_OF_SIZE  # a 5xx may be a fault of the server: only words about size count
    for rule in rules:
        changes = rule.apply(refused)
        if changes:
            return changes
    return {}


def refuses_signature(refused: Refused) -> bool:
    """Whether a refusal is about thinking that was sent back with its signature."""
    words = refused.words
    is_missing = rejection_words.WANTS_CALL_SIGNATURE.search(words) is not None
    return not is_missing and rejection_words.ABOUT_SIGNATURE.search(words) is not None


def speaks_of_calls(refused: Refused) -> bool:
    """Whether a refusal speaks of calls or results in the messages, whatever it says of them."""
    names_calls = rejection_words.ABOUT_CALL_OR_RESULT.search(refused.words) is not None
    return refused.answer.status in (400, 422) and names_calls


def refuses_calls(refused: Refused) -> bool:
    """Whether a refusal is about calls and results in the messages that do not belong together. If
    it is not recognized, each later request is refused, too, because it has the same calls.
    """
    words = refused.words
    is_about_support = "support" in words  # "tools are not supported" is not about these calls
    is_other = is_about_support or any(pattern.search(words) for pattern in _OTHER_THAN_CALLS)
    if refused.answer.status not in (400, 404, 422) or is_other:
        return False
    names_calls = rejection_words.ABOUT_CALL_OR_RESULT.search(words) is not None
    return names_calls and rejection_words.SAYS_UNPAIRED.search(words) is not None


def refuses_one_picture(refused: Refused) -> bool:
    """Whether a refusal is about one image, such as its size or format. False if the server accepts
    no images at all.
    """
    words = refused.words
    if not refused.has_images or not rejection_words.ABOUT_IMAGES.search(words):
        return False
    if re.search(r"content[ _]?type|unknown variant|not support|n't support|token", words):
        return False  # about all images, or about the size of the request
    return rejection_words.SAYS_BAD_IMAGE.search(words) is not None


def _find_wire(refused: Refused) -> Changes:
    """Returns the change to the other wire of a model that does not work with this one; no change
    if there is no other wire.

    Without this rule each turn with tools fails for OpenAI's current models on chat completions.
    """
    return {"wire": refused.other_wire} if refused.other_wire else {}


def _find_effort(refused: Refused) -> Changes:
    """Returns the change to the nearest effort that the refusal lists. If it lists none: to the
    next one if it names the sent effort, else to no field. Empty if it is not about the effort.

    Without this rule a model with other levels than ours does not answer at all.
    """
    words = refused.words
    (owner, field), sent = _find_sent_effort(refused.body)
    with_plain_quotes = re.sub(r"[\"`‘’“”]", "'", words)
    is_value_named = f"'{sent}'" in with_plain_quotes
    if not is_value_named and not rejection_words.ABOUT_EFFORT.search(words):
        return {}
    tried = {sent, *refused.facts.names_of_kind("effort")}
    efforts = [effort for effort in _list_efforts(words) if effort not in tried]
    if not sent:  # no effort was sent; only `set reasoning_effort to 'none'` asks for one
        return {"effort.unset": "none"} if efforts == ["none"] else {}
    if efforts:
        nearest = min(efforts, key=lambda effort: _effort_distance(effort, sent))
        return {f"effort.{sent}": nearest}
    # To leave out `output_config` is a change of the thinking style, which is another rule.
    if owner == "output_config" or not rejection_words.SAYS_UNSUPPORTED.search(words):
        return {}
    if is_value_named:
        return {f"effort.{sent}": _next_effort(sent)}
    return {f"without.{owner or field}": ""}


def _find_sent_effort(body: Mapping[str, Any]) -> tuple[tuple[str, str], str]:
    """The path of the effort in the body (see EFFORT_FIELDS), and the effort. If the body has no
    effort, the first path and an empty text.
    """
    for owner, field in EFFORT_FIELDS:
        values = dictionary(body.get(owner)) if owner else body
        effort = values.get(field)
        if isinstance(effort, str):
            return (owner, field), effort
    return EFFORT_FIELDS[0], ""


def _list_efforts(words: str) -> list[str]:
    """The efforts that a refusal names, each once, in its order: those in quotation marks. If there
    are none, or one that may be the refused effort, also the words after `must be` and the like.
    """
    effort_names = {*SCALE, "default"}
    quoted = [word for word in rejection_words.QUOTED_WORD.findall(words) if word in effort_names]
    # A single quoted effort may be the refused one. After `to` it is not: `set it to 'none'`.
    is_list_or_advice = len(quoted) > 1 or (quoted and "to" in words)
    if is_list_or_advice:
        return list(dict.fromkeys(quoted))
    values = rejection_words.LIST_OF_VALUES.search(words)
    listed_words = re.findall(r"[a-z]+", values[1]) if values else []
    listed = [word for word in listed_words if word in effort_names]
    return list(dict.fromkeys([*quoted, *listed]))


def _effort_distance(effort: str, sent: str) -> tuple[int, int]:
    """A sort key: how far an effort is from the one that was sent. Of two with the same distance
    the lesser comes first.
    """
    rank = SCALE.index("medium" if effort == "default" else effort)
    sent_rank = SCALE.index(sent) if sent in SCALE else SCALE.index("medium")
    return abs(rank - sent_rank), rank


def _next_effort(sent: str) -> str:
    """The effort to try if the refusal lists no efforts: a higher one than `none` and `minimal`, a
    lower one than the others. Empty if there is no further one: then the field is left out.
    """
    ladder = _UPWARD if sent in ("none", "minimal") else _DOWNWARD
    if sent not in ladder or sent == ladder[-1]:
        return ""
    return ladder[ladder.index(sent) + 1]


def _find_room(refused: Refused) -> Changes:
    """Returns the change to the window that the refusal names, and to an answer that takes the rest
    of it which the messages leave. No change if the refusal does not name the numbers for that: the
    window, the size of the messages, and either the limit of the answer that was sent or the sum of
    this limit and the size.

    Which number is which is found by trying all pairs, the largest window first. In the right pair
    the rest is smaller than the limit that was sent, which is why it was refused, but not tiny.
    """
    limit = refused.limit
    # Smaller numbers are no sizes: parts of a version, or the number of messages.
    numbers = {number for number in refused.numbers if number > 99}
    for window, size in itertools.permutations(sorted(numbers, reverse=True), 2):
        rest = window - size
        names_limit_or_sum = limit in numbers or size + limit in numbers
        is_plausible_rest = limit * MIN_ROOM <= rest < limit
        if names_limit_or_sum and is_plausible_rest:
            return {"window": str(window), "max_output": str(rest)}
    return {}


def _find_max_output(refused: Refused) -> Changes:
    """Returns the change to a smaller limit of an answer: the largest number in the refusal that is
    below the limit that was sent; no change without such a number. No change either if the refusal
    names a larger one, or the input and not the limit: then it is about the window for both.
    """
    limit, numbers = refused.limit, refused.numbers
    smaller = [number for number in numbers if MIN_LIMIT <= number < limit]
    words = _without_misleading_names(refused.words)
    is_about_answer = limit in numbers or not rejection_words.ABOUT_INPUT.search(words)
    has_sum = any(number > limit for number in numbers)
    if not smaller or not is_about_answer or has_sum:
        return {}
    return {"max_output": str(max(smaller))}


def _without_misleading_names(words: str) -> str:
    """The words without the names of fields and errors in which ABOUT_INPUT finds something, although
    they do not speak of the input.
    """
    return (
        words.replace("context_window", "")
        .replace("invalid_request", "")
        .replace("input_value", "")
    )


def _find_output_limit(refused: Refused) -> Changes:
    """Returns the change to the other name of the limit of an answer, because some servers know
    only one of the two names. No change if the refusal is not about that name.
    """
    sent_names = refused.body.keys() & set(refused.limit_names)
    other_names = sorted(set(refused.limit_names) - sent_names)
    if not sent_names or not other_names:
        return {}
    says_unsupported = rejection_words.SAYS_UNSUPPORTED.search(refused.words) is not None
    is_refused = says_unsupported and any(map(refused.names, sent_names))
    if is_refused or refused.names(other_names[0]):
        return {"output_limit": other_names[0]}
    return {}


def _find_images(refused: Refused) -> Changes:
    """Returns the change to descriptions instead of images; no change if the refusal is about
    something else, or about one image only.

    Without this rule each later request of the session is refused, too, because it has the same
    image.
    """
    if not refused.has_images or refuses_one_picture(refused):
        return {}
    names_images = rejection_words.ABOUT_IMAGES.search(refused.words)
    wants_text = rejection_words.WANTS_TEXT.search(refused.words)
    if names_images or wants_text or refused.answer.status == 415:  # Unsupported Media Type
        return {"images": "no"}
    return {}


def _find_thinking_back(refused: Refused) -> Changes:
    """Returns the next change in how thinking is sent back: at the first refusal with calls only,
    at the second with each answer. If the server does not accept thinking that was sent, none is
    sent. No change if the refusal does not ask for thinking.

    Without this rule the first request after a call is refused by the thinking models of some
    vendors.
    """
    current = refused.facts.get("thinking_back")
    is_sent = current in ("yes", "all") or _sends_thinking(refused)
    if is_sent and rejection_words.SAYS_NOT_ACCEPTED.search(refused.words):
        return {"thinking_back": "no"}
    is_wanted = re.search(
        r"must|miss|require|back|need|缺|必须|传|回传|manqu|falta|fehlt", refused.words
    )
    if not is_wanted or current == "all":
        return {}
    return {"thinking_back": "all" if current == "yes" else "yes"}


def _sends_thinking(refused: Refused) -> bool:
    """Whether thinking or reasoning details were sent back with an answer."""
    messages = refused.body.get("messages") or ()
    names = {DETAILS, *THINKING_NAMES}
    return any(names & dictionary(message).keys() for message in messages)


def _find_style(refused: Refused) -> Changes:
    """Returns the change to the next style of asking for thinking; no change if thinking was not
    asked for, or no other style is left.
    """
    is_asked = "thinking" in refused.body or "output_config" in refused.body
    if not is_asked or len(refused.thinking_styles) < 2:
        return {}
    return {"thinking_style": refused.thinking_styles[1]}


def _find_system_role(refused: Refused) -> Changes:
    """Returns the change to another role of the system prompt, or to joined messages if the roles
    must alternate: templates of some local models know only `user` and `assistant`, in turns. No
    change if the refusal does not name the role.
    """
    current = refused.facts.get("system_role") or "system"
    if rejection_words.MUST_ALTERNATE.search(refused.words):
        return {"roles": "joined"}
    named_roles = set(rejection_words.SYSTEM_ROLE_NAME.findall(refused.words))
    if current not in named_roles:
        return {}
    return {"system_role": "system" if current == "developer" else "user"}


def _find_tool_schema(refused: Refused) -> Changes:
    """Returns the change to simple schemas of tools, without what only some servers understand. No
    change if there were no tools, or if the refusal is about the schema of the answer.

    Without this rule one schema, for example of an MCP server, makes each request fail.
    """
    is_about_format = "response_format" in refused.body and refused.names("response_format")
    if is_about_format or not refused.body.get("tools"):
        return {}
    return {"tool_schema": "simple"}


def _find_tools(refused: Refused) -> Changes:
    """Returns the change to tools that are described in the prompt. No change if there were no
    tools, or if the refusal is about a part of a message or about earlier calls.

    Without this rule local models that have no template for tools cannot be used.
    """
    if not refused.body.get("tools"):
        return {}
    is_about_messages = (
        rejection_words.ABOUT_MESSAGE_PART,
        rejection_words.WANTS_CALL_SIGNATURE,
    )
    if any(pattern.search(refused.words) for pattern in is_about_messages):
        return {}
    if refuses_calls(refused):
        return {}
    return {"tools": "text"}


def _find_call_ids(refused: Refused) -> Changes:
    """Returns the change to ids of calls with the length that the refusal names; no change if it
    names none. The ids of earlier calls may come from another model, with another length.
    """
    lengths = [int(digits) for digits in rejection_words.NAMED_LENGTH.findall(refused.words)]
    # Another number in the text is no length of an id, such as a position or a code of HTTP.
    possible = [length for length in lengths if _MIN_ID_LENGTH <= length <= _MAX_ID_LENGTH]
    if not possible:
        return {}
    # A server that names the length which it got and the one which it allows allows the smaller.
    return {"call_ids": str(min(possible))}


def _find_call_signatures(refused: Refused) -> Changes:
    """Returns the change to a placeholder in calls without a signature; no change if the request has no
    calls.

    Without this rule Gemini 3 refuses a session that another model began.
    """
    messages = refused.body.get("messages") or ()
    has_calls = any(message.get("tool_calls") for message in map(dictionary, messages))
    return {"call_signatures": "placeholder"} if has_calls else {}


def _find_result_names(refused: Refused) -> Changes:
    """Returns the change to send each tool result with the name of its tool, which Gemini's format
    needs; no change if all results in the refused request have it.
    """
    messages = refused.body.get("messages") or ()
    is_unnamed = any(
        message.get("role") == "tool" and "name" not in message
        for message in map(dictionary, messages)
    )
    return {"result_names": "yes"} if is_unnamed else {}


def _find_empty_content(refused: Refused) -> Changes:
    """Returns the change to an empty text in messages that only have calls, because some servers
    refuse null there; no change if no message has null.
    """
    messages = refused.body.get("messages") or ()
    has_null = any(dictionary(message).get("content", "") is None for message in messages)
    return {"empty_content": "yes"} if has_null else {}


def _find_field(refused: Refused) -> Changes:
    """Returns the change to leave out an optional field that the refusal names: the one in its
    `param`, else the first in its words. No change if it names none.

    A path to a part of a field (`parts`) counts most, then the name of a field (`named`), then a
    field that contains a named part (`containing`). The fields are those of the request, not of a
    list: so a field of a later version of ouro is left out, too.
    """
    optional = refused.body.keys() - ESSENTIAL
    containing = _find_containing_fields(refused)
    parts = [field for field in containing if "." in field]
    named = [*filter(refused.names, optional)]
    if not named:
        named = [*filter(refused.names, OPTIONAL_AT_ANY_LEVEL)]
    fields = parts or sorted(named or containing, key=refused.words.find)
    param = refused.answer.param.partition(".")[0]
    if param in fields:
        return {f"without.{param}": ""}
    if fields:
        return {f"without.{fields[0]}": ""}
    return {}


def _find_containing_fields(refused: Refused) -> list[str]:
    """The optional fields that contain a part which the refusal names, such as `stream_options` for
    `include_usage`. If the refusal names the part together with its field, the path of the part is
    returned instead, such as `reasoning.summary`. Parts are the keys of an object, or the texts of
    a list.
    """
    paths: list[str] = []
    for name in refused.body.keys() - ESSENTIAL:
        value = refused.body[name]
        parts = value if isinstance(value, dict | list) else ()
        for part in parts:
            if not isinstance(part, str):
                continue
            last_word = re.escape(part.rpartition(".")[2])
            # Such as `reasoning.summary` or `reasoning 'summaries`: the end of the word may differ.
            if re.search(rf"{name}.{{0,3}}{last_word[:6]}", refused.words):
                paths.append(f"{name}.{part}")
            elif "_" in part and re.search(last_word.replace("_", "[_ ]"), refused.words):
                paths.append(name)
    return sorted(paths)


RULES_OF_SIZE = (
    RefusalRule(
        "room",
        (rejection_words.ABOUT_INPUT,),
        _find_room,
        "This model's maximum context length is 16384 tokens. However, you requested 17783 tokens"
        " (9591 in the messages, 8192 in the completion).",
        "This model's maximum context length is 8192 tokens, and your messages have 9000.",
    ),
    RefusalRule(
        "max_output",
        (rejection_words.ABOUT_ANSWER_LIMIT,),
        _find_max_output,
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens.",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 200.",
    ),
)
"""The rules about sizes: they apply to faults of the server, too."""
RULES = (
    RefusalRule(
        "wire",
        (rejection_words.NAMES_RESPONSES_API,),
        _find_wire,
        "Function tools with reasoning_effort are not supported. To use function tools, use"
        " /v1/responses or set reasoning_effort to 'none'.",
        "Invalid response format.",
    ),
    RefusalRule(
        "effort",
        speaks_of=(),
        find=_find_effort,
        example="Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported"
        " values are: 'low', 'medium', and 'high'.",
        counterexample="The request takes too much effort to parse.",
    ),
    *RULES_OF_SIZE,
    RefusalRule(
        "output_limit",
        speaks_of=(),
        find=_find_output_limit,
        example="Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead.",
        counterexample="Your messages have too many tokens.",
    ),
    RefusalRule(
        "thinking_back",
        (rejection_words.ABOUT_SENT_THINKING,),
        _find_thinking_back,
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Thinking is not available in your region.",
    ),
    RefusalRule(
        "call_signatures",
        (rejection_words.WANTS_CALL_SIGNATURE,),
        _find_call_signatures,
        "Function call is missing a thought_signature in functionCall parts. Additional data,"
        " function call `default_api:read`, position 2.",
        "Thought signature is not valid.",
    ),
    RefusalRule(
        "images",
        speaks_of=(),
        find=_find_images,
        example="messages[3]: unknown variant `image_url`, expected `text`",
        counterexample="Image dimensions exceed the maximum size: 8000 pixels.",
    ),
    RefusalRule(
        "thinking_style",
        (rejection_words.ABOUT_THINKING_STYLE,),
        _find_style,
        "thinking.type: Input should be 'enabled' or 'disabled'",
        "max_tokens must be greater than 0",
    ),
    RefusalRule(
        "call_ids",
        (rejection_words.ABOUT_CALL_ID,),
        _find_call_ids,
        "Tool call id was call_abc but must be a-z, A-Z, 0-9, with a length of 9.",
        "Tool call id was not found.",
    ),
    RefusalRule(
        "result_names",
        (rejection_words.ABOUT_RESULT, rejection_words.WANTS_NAME),
        _find_result_names,
        "Tool message must have a 'name' field.",
        "Tool message must have content.",
    ),
    RefusalRule(
        "empty_content",
        (rejection_words.ABOUT_CONTENT, rejection_words.SAYS_EMPTY),
        _find_empty_content,
        "messages.2.content: Input should be a valid string, got null",
        "messages.2.role: Input should be a valid string",
    ),
    RefusalRule(
        "system_role",
        (rejection_words.ABOUT_ROLES,),
        _find_system_role,
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "You have no role in this organization.",
    ),
    RefusalRule(
        "tool_schema",
        (rejection_words.ABOUT_SCHEMA, rejection_words.ABOUT_TOOLS),
        _find_tool_schema,
        "Invalid schema for function 'edit': 'oneOf' is not permitted in tools.",
        "Invalid JSON in the request.",
    ),
    RefusalRule(
        "field",
        speaks_of=(),
        find=_find_field,
        example="Unknown field: stream_options",
        counterexample="Unknown model: gpt-9",
    ),
    RefusalRule(
        "tools",
        (rejection_words.ABOUT_TOOLS, rejection_words.SAYS_NO_TOOLS),
        _find_tools,
        "registry.ollama.ai/library/codellama:latest does not support tools",
        "messages[4]: tool call id is not valid",
    ),
)
"""All rules, in the order in which they are asked: the more exact ones come first."""
