"""Whether a refusal means that a request is too long, in any language."""

from __future__ import annotations

import re

from ouro.errors import ProviderAnswer
from ouro.utils.late_pattern import late_pattern

STATUSES = (400, 413, 422, 500)
"""The statuses with which servers refuse a request that is too long."""
NEAR_THE_WINDOW = 0.75
"""A refusal without a reason counts as too long from this share of the window on: the size is only
estimated.
"""
MIN_WINDOW = 512
"""No window is smaller: a refusal that names only smaller numbers is about something else."""

_KNOWN_WORDING = late_pattern(
    r"context shift is disabled|context[_ ]length|context[_ ]window|context[_ ]size|maximum context|context limit"
    r"|(?:prompt|input)(?: is)? too long|prompt_too_long|maximum prompt length|reduce the length"
    r"|too many (?:input )?tokens|token count .{0,80}exceeds"
    r"|exceeds? .{0,40}(?:maximum|max) .{0,20}tokens|request_too_large|range of input length"
    r"|max_(?:completion_|output_|new_)?tokens.{0,60}(?<![\w-])-\d",  # what is left of the window is less than nothing
    re.IGNORECASE,
)
"""Matches what known providers say if a request is too long."""
# The languages of the following two are those of servers whose errors were reported. For all other
# languages the size decides.
_MEASURE_WORDS = late_pattern(
    r"token|context|kontext|contexte|contexto|contesto|length|l[äa]nge|longueur|longitud|comprimento"
    r"|lunghezza|limit|l[íi]mite|sequence|payload|max_(?:model|seq)_len|n_ctx"
    r"|(?:input|prompt|request|messages?|conversation) (?:is |are )?(?:too|exceed)"
    r"|prompt|characters|eingabe|entr[ée]e|entrada|l'input|wejście|đầu vào|độ dài|इनपुट|السياق|الرموز"
    r"|nachricht|mensaje|mensagem|сообщен|промпт|プロンプト|内容|消息|长度|上下文|字符|超长|長さ|コンテキスト|トークン|文字数|入力|길이|컨텍스트|토큰|입력|длин|контекст|токен|лимит|запрос",
    re.IGNORECASE,
)
"""Matches a word for what is measured: `token`, `Länge`, `上下文`."""
_TOO_MUCH_WORDS = late_pattern(
    r"exceed|excess|too (?:long|large|big|many)|longer|larger|bigger|greater"
    r"|(?:more|less|fewer) than|at most|\bfull\b"
    r"|over(?:flow|run| the (?:limit|maximum))|beyond|maximum|out of range|<=|>|reduce|shorten|truncat"
    r"|超|最大|过长|太长|長す|長い|초과|너무|d[ée]pass|überschr|zu (?:lang|groß)|trop long|supera|sobrepasa"
    r"|demasiad|excede|muito long|troppo|превы|слишком|za dług|przekrocz|quá dài|vượt|लंब|يتجاوز"
    r"|(?<!\d)\d[\d,._]{2,20}\W{0,3}(?:\w{1,20} )?(?:token|токен|トークン|토큰)"
    r"|(?:token|токен|トークン|토큰)\w{0,20}\W{0,3}(?:\w{1,20}\W){0,3}\d[\d,._]{2}",
    re.IGNORECASE,
)
"""Matches a word for too much of it: `exceeds`, `zu lang`, `超`."""
_RATE_LIMIT = late_pattern(
    r"\brate.?limit|\bper.?(?:min|minute|day|hour|month|second)\b|\b[tr]p[md]\b|quota|(?:daily|weekly|monthly)"
    r"|usage limit|\bspen[dt]|credit|billing|concurren|requests? limit|too many requests|每分钟|速率|并发",
    re.IGNORECASE,
)
"""Matches a limit in a span of time, or of money."""
_OTHER_LIMIT = late_pattern(
    r"unexpected token|(?:access|auth\w*|api|bearer|csrf|refresh) token"
    r"|token (?:is |has )?(?:invalid|expired)|timeout|timed out|deadline|cancel|retries"
    r"|connections?\b|call stack|recursion|tools?[.\[]|functions?[.\[]|\.(?:id|name|description)\b",
    re.IGNORECASE,
)
"""Matches other things that have a limit or a length: `access token`, `timeout`, `tools[0]`."""
_ANSWER_LIMIT = late_pattern(
    r"(?<![\w.])[\w.]*(?:max_?(?:completion_?|output_?|new_?)?|budget_?)tokens|(?:completion|output)"
    r" (?:tokens?|length|limit)|最大输出\w{0,4}|输出(?:长度|令牌)|出力トークン\w*",
    re.IGNORECASE,
)
"""Matches the limit of an answer, which is not the length of the request: `max_tokens`."""
_PATH_IN_REQUEST = late_pattern(
    r"(?<![\w.])\w+(?:\[\d+\]|\.\w+)*(?:\[\d+\]|\.(?!content|text)[A-Za-z]\w*|\.\d+)"
)
"""Matches the path of a value in the request, such as `tools[0].function.name`."""
_WHOLE_NUMBER = late_pattern(r"(?<![\w.])\d[\d,_]{0,20}(?![\w.]*\d)")
"""Matches a whole number, also with separators: `128,000`."""
_SMALL_LIMIT = late_pattern(
    r"(?:maximum|max|most|limit)\b(?: \w+){0,2}\W{1,3}(\d{1,3})\b(?![.,]?\d)", re.IGNORECASE
)
"""Matches a limit below 1,000: `maximum is 64`."""
_LIMIT_AND_REQUESTED = late_pattern(
    r"limit\D{0,12}(\d[\d,]{0,20})(?!\d).{0,60}?requested\D{0,12}(\d[\d,]{0,20})(?!\d)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a limit and the requested number: `Limit 30000, Requested 41234`."""


_OTHER_UNIT = late_pattern(r"\b(?:[kmg]i?b|bytes?|characters?|chars?)\b", re.IGNORECASE)
"""Matches a unit that is no token: `32 MB`, `characters`."""
_MAX_MISTAKE = 3
"""The size of a request is estimated: it may be so many times more or less."""


def find_window(text: str, size: int) -> int | None:
    """Returns the window, in tokens, that the refusal of a request as too long names; None if it
    names none.

    A refusal names the window, often the size of the request, which is larger, and sometimes other
    numbers. Only numbers near the size of the request count.

    Args:
        size: about how many tokens the request has.
    """
    if _OTHER_UNIT.search(text):
        return None
    numbers = {int(re.sub(r"[,_]", "", digits)) for digits in _WHOLE_NUMBER.findall(text)}
    smallest = max(MIN_WINDOW, size / _MAX_MISTAKE)
    near = sorted(number for number in numbers if smallest <= number <= size * _MAX_MISTAKE)
    if not near:
        return None
    # The largest one is the size of the request, if there are several.
    return near[-2] if len(near) > 1 else near[0]


def names_overflow(status: int, text: str) -> bool:
    """Whether a refusal says, by its status or in the words of a known provider, that the window is
    full.
    """
    is_named = status == 413 or (status in STATUSES and _KNOWN_WORDING.search(text))
    return bool(is_named) and not is_rate_limit(text)


def is_rate_limit(text: str) -> bool:
    """Whether a refusal is about a limit in a span of time, or about money."""
    return bool(_RATE_LIMIT.search(text))


def exceeds_rate(text: str) -> bool:
    """Whether a refusal by a rate limit says that this request alone is more than the limit allows:
    no wait helps.
    """
    if not is_rate_limit(text):
        return False
    match = _LIMIT_AND_REQUESTED.search(text)
    if match is None:
        return False
    limit, requested = (int(number.replace(",", "")) for number in match.groups())
    return requested > limit


def is_too_long(answer: ProviderAnswer, share: float) -> bool:
    """Whether a refusal means that the messages do not fit.

    Args:
        answer: what the provider answered; its request had no other fault that ouro knows.
        share: the size of the request as a share of the window.
    """
    text = answer.text
    if answer.status not in STATUSES or is_rate_limit(text):
        return False
    is_sure = share >= NEAR_THE_WINDOW or names_overflow(answer.status, text)
    return is_sure or _speaks_of_length(text)


def _speaks_of_length(text: str) -> bool:
    """Whether a refusal speaks of too much text, and of nothing else that has a limit. This is
    decided by words for a measure (`token`) and for too much (`exceeds`), and by the numbers.
    """
    about_request = _PATH_IN_REQUEST.sub(" ", _ANSWER_LIMIT.sub(" ", text))
    numbers = [int(re.sub(r"[,_]", "", digits)) for digits in _WHOLE_NUMBER.findall(about_request)]
    sizes = [number for number in numbers if number not in STATUSES]
    limits = [int(digits) for digits in _SMALL_LIMIT.findall(about_request)]
    # No window is smaller than MIN_WINDOW. Smaller numbers are about something else, such as the
    # number of tools.
    has_small_limit = False
    if sizes:
        has_small_limit = max(sizes) < MIN_WINDOW or any(limit < MIN_WINDOW for limit in limits)
    if has_small_limit or _OTHER_LIMIT.search(text):
        return False
    has_measure = _MEASURE_WORDS.search(about_request) is not None
    return has_measure and _TOO_MUCH_WORDS.search(about_request) is not None
