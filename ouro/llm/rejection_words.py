"""Patterns for the words of refusals, in the languages of the servers that were reported."""

from __future__ import annotations

import re

from ouro.utils.late_pattern import late_pattern

WHOLE_NUMBER = late_pattern(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?![\w.]*\d)|(?<![\w.])\d+(?![.\d]*\d)")
"""Matches a whole number, also with separators: `8,192`."""
QUOTED_WORD = late_pattern(r"""["'`‘’“”]([a-z]{3,8})["'`‘’“”]""")
"""Matches a word in quotation marks: `'low'`."""
ABOUT_EFFORT = late_pattern(r"effort|thinking[_ ]?level|reasoning[_ ]level")
LIST_OF_VALUES = late_pattern(
    r"(?:supported values|must be|should be|one of|allowed|available|expected|choose|use)(.*)",
    re.DOTALL,
)
"""Matches what follows `must be one of` and the like."""
SAYS_UNSUPPORTED = late_pattern(
    r"unsupported|not supported|n't support|not support|unknown|unrecogni[sz]ed|unexpected|extra"
    r"|not permitted|not allowed|forbidden|invalid|deprecated|no such|instead|cannot|不支持|不能"
    r"|未知|無効|未対応|non support|nicht unterst|no compatible|no admit|no se admite|não suport"
    r"|не поддерж|неизвестн"
)
NAMES_MISSING_SUPPORT = late_pattern(
    r"support|--jinja|mmproj|not allowed|not permitted|unknown (?:field|param)|but must be a-z"
)
"""Matches what a server says that cannot do something, also with a status of 500."""
ABOUT_ANSWER_LIMIT = late_pattern(
    r"max_(?:completion_|output_|new_)?tokens|maxtokens|maxoutputtokens|(?:completion|output) tokens"
    r"|maximum tokens|最大输出|出力トークン"
)
ABOUT_INPUT = late_pattern(
    r"input|prompt|messages?\b(?! *\[)|in the request|context|输入|上下文|入力|entrada|eingabe"
)
ABOUT_IMAGES = late_pattern(
    r"image|imagen|imagem|immagin|picture|photo|vision|visual|multi-?modal|mmproj|bild(?:er|ern)?\b"
    r"|图片|图像|圖|视觉|画像|이미지|изображен"
)
WANTS_TEXT = late_pattern(
    r"(?:must be|expected|should be|valid|not|only)\b.{0,30}\b(?:string|str|text)\b"
    r"|content[ _]?type|content part|invalid type: sequence"
)
"""Matches a refusal of a content that is not a text."""
SAYS_BAD_IMAGE = late_pattern(
    r"too (?:large|big|small|many)|exceed|size|dimension|pixel|resolution|corrupt|decod|damaged"
    r"|could not process|cannot process|unable to process|failed to (?:load|process|read)"
    r"|media[_ ]type|mime|invalid (?:image|base64)|malformed|format|过大|大きすぎ"
)
"""Matches what is wrong with a single image: `too large`, `cannot decode`."""
ABOUT_SENT_THINKING = late_pattern(
    r"reasoning_content|reasoning_details|content(?:\[\d*\])?\.thinking\b"
    r"|\breasoning\b field|messages\S{1,40}\.reasoning\b|both content and (?:thinking|reasoning)"
)
"""Matches a refusal about thinking that was sent back, or was not."""
SAYS_NOT_ACCEPTED = late_pattern(
    r"unsupported|not supported|not support|unknown|unexpected|unrecogni[sz]ed|extra_forbidden"
    r"|not permitted|not allowed|cannot|不支持"
)
ABOUT_SIGNATURE = late_pattern(
    r"signature|invalid_encrypted_content|encrypted[ _]content\W.{0,80}(?:verif|issued|decrypt"
    r"|expired|not valid|match|belong|caller)|'reasoning' was provided without"
    r"|item with id 'rs_|(?:redacted_)?thinking[`'\"]? (?:or [`'\"]?redacted_thinking[`'\"]? )?blocks?"
)
"""Matches a refusal about the signature or the encrypted form of thinking."""
WANTS_CALL_SIGNATURE = late_pattern(
    r"(?:missing|without|no) (?:a |its )?`?thought_?signature|thought_?signature`? (?:is )?missing"
)
"""Matches a refusal of a call without the signature that Gemini gives to each step."""
ABOUT_THINKING_STYLE = late_pattern(r"thinking|adaptive|budget_tokens|output_config|effort|display")
ABOUT_ROLES = late_pattern(r"raise_exception|\brol(?:e|es|le|a)\b|角色|ロール|роль")
SYSTEM_ROLE_NAME = late_pattern(r"\b(system|developer)\b")
MUST_ALTERNATE = late_pattern(r"\balternat|consecutive|两条连续|交替|交互")
ABOUT_TOOLS = late_pattern(
    r"\btools?\b|tool[_ -](?:use|calls?|calling|choice)|function[_ -]call|functions?\b|--jinja|工具"
    r"|jinja|chat[_ ]template|函数调用|ツール|herramienta|ferramenta|outils?\b|werkzeug|инструмент"
)
ABOUT_SCHEMA = late_pattern(
    r"schema|parameters|anyof|oneof|\$ref|additionalproperties|exclusiveminimum|json_schema"
)
ABOUT_CALL_ID = late_pattern(
    r"tool_?call_?id|tool_use_id|tool call id|tool_calls?\b.{0,20}\bid\b|call_id"
)
NAMED_LENGTH = late_pattern(r"(?:length|long|characters|chars|max\w*)\D{0,30}?(\d{1,3})\b")
"""Matches a length in characters: `maximum length 40`."""
ABOUT_CONTENT = late_pattern(r"content")
ABOUT_MESSAGE_PART = late_pattern(r"messages?[.\[]|tool_?call_?id|tool_use_id|tool_result")
SAYS_NO_TOOLS = late_pattern(
    rf"{SAYS_UNSUPPORTED.pattern}|--enable-auto-tool-choice|--jinja|requires|no endpoints|jinja"
    r"|only [\w ]{0,20}supported"
)
ABOUT_CALL_OR_RESULT = late_pattern(
    r"tool_?(?:use|result|call)|tool[ -](?:use|call|result|response|output|message)"
    r"|function[_ -]?(?:call|response|result|output)|\btools? (?:ids?|messages?)\b"
    r"|role\W{0,3}(?:is |of )?\W?(?:tool|function)\b|工具(?:调用|消息|结果)|ツール(?:呼び出し|結果)"
)
SAYS_UNPAIRED = late_pattern(
    r"without|did not have|do(?:es)? not have|must have|must be (?:a response|followed|preceded)"
    r"|follow|correspond|preced|immediately (?:before|after)|number of|insufficient|unmatched|orphan"
    r"|match|missing|not (?:be )?found|no tool (?:call|output)|no function|unexpected|expected"
    r"|对应|匹配|缺少|之后|紧跟|找不到|未找到|対応|見つかり"
)
"""Matches what is said of a call without a result, or of a result without a call."""
ABOUT_RESULT = late_pattern(
    r"tool (?:message|result|response)|function[_ ]?response|role\W{0,3}tool\b"
)
WANTS_NAME = late_pattern(
    r"\bname\b.{0,60}(?:empty|required|missing|must|field)|(?:have|missing|requires?) .{0,12}\bname\b"
)
"""Matches a refusal of a message that has no name."""
SAYS_EMPTY = late_pattern(r"\bnull\b|none|nil\b|required|missing|string|empty|必填|不能为空")
NAMES_RESPONSES_API = late_pattern(r"/?(?:v1)?/responses\b|responses api", re.IGNORECASE)
