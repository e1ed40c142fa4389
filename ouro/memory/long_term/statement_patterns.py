"""The words by which rules read a statement without a model, as one table.

Every row has a language, an example that it matches, a counterexample that it does not, and why it
is there; a test runs each row. docs/benchmarks.md shows what is lost without it. A language is a
set of rows: without any, a model or the user decides.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple


class StatementPattern(NamedTuple):
    """A row of the table."""

    group: str
    """What a match means: the rows of a group are alternatives."""
    language: str
    pattern: str
    example: str
    counterexample: str
    why: str
    has_case: bool = False
    """Whether capital letters count."""


@cache
def pattern_of_group(group: str) -> re.Pattern[str]:
    """One pattern that matches what any row of a group matches; of a group without rows, one that
    matches nothing.
    """
    rows = [row for row in TABLE if row.group == group]
    sources = [f"(?{'' if row.has_case else 'i'}:{row.pattern})" for row in rows]
    return re.compile("|".join(sources) or "(?!)")


def has(group: str, text: str) -> bool:
    """Whether the pattern of a group matches somewhere in a text."""
    return pattern_of_group(group).search(text) is not None


# fmt: off
TABLE = (
    StatementPattern("introduction", "English",
        r"\s*(?:(?:no|nope|wrong|stop|wait|sorry|correction|actually|by the way|btw|fyi|hold on"
        r"|from now on|not quite|(?:that|this)(?:['’]s| is| was) (?:not (?:right|correct|true)|wrong"
        r"|a mistake|outdated)|you(?:['’]re| are) wrong|(?:I|we)(?:['’]ve| have)? changed (?:my"
        r"|our) minds?|(?:please )?(?:remember|note)(?: that| this)?)\b\s*(?:[,;:.!—–-]+\s*"
        r"|(?=that\b)|(?<=actually\s)|(?<=now on\s)|(?<=by the way\s)|(?<=btw\s)|(?<=fyi\s)))+",
        "No, that is wrong: use tabs", "No deploys on Fridays",
        "The rule is kept without the words that introduce it."),
    StatementPattern("introduction", "German",
        r"\s*(?:nein|doch|falsch|übrigens|ach ja|merk dir|korrektur)\b\s*[,;:.!—–-]+\s*",
        "Nein, der Server ist abnahme-2", "Nein sagen wir nie", "As in English."),
    StatementPattern("introduction", "French",
        r"\s*(?:non|en fait|au fait|correction|finalement|note bien|à partir de maintenant)\b\s*[,;:.!—–-]+\s*",
        "Non, le port est 8081", "Non conforme veut dire refusé", "As in English."),
    StatementPattern("introduction", "Spanish",
        r"\s*(?:no|en realidad|por cierto|ojo|recuerda que|correcci[oó]n|a partir de ahora)\b\s*[,;:.!—–-]+\s*",
        "No, el servidor es pruebas-7", "No usamos tabs", "As in English."),
    StatementPattern("introduction", "Chinese",
        r"\s*(?:不对|不是|另外|顺便|记住|更正|从现在起|今后)[，,：:。]\s*",
        "不对，端口是 5173", "不是所有接口都有测试", "As in English."),
    StatementPattern("introduction", "Japanese",
        r"\s*(?:いや|いいえ|違う|ちなみに|訂正|今後は|これからは)[、,：:。]\s*",
        "いや、ポートは5173です", "いやな警告は無視する", "As in English."),
    StatementPattern("contradicts", "English",
        r"^\s*(?:no|nope|wrong|correction)\b\s*[,;:.!—–-]|\b(?:I|we)(?:['’]ve"
        r"| have)? changed (?:my|our) minds?\b|\b(?:that|this)(?:['’]s| is| was) (?:not (?:right"
        r"|correct|true)|wrong|a mistake|outdated)\b",
        "That is wrong. Use tabs", "A wrong port is refused",
        "Says that something said before is wrong."),
    StatementPattern("changes", "English",
        r"\b(?:from now on|as of|no longer|any ?more|any longer|now|instead|actually)\b",
        "The queue is RabbitMQ now", "The queue is known",
        "Announces a change of what held before."),
    StatementPattern("adds", "English",
        r"\b(?:also|as well|additionally)\b|\btoo(?=\W*$|[,;:.])",
        "The tests also run on Windows", "Jenkins was too slow, we use Drone",
        "A statement that adds does not replace."),
    StatementPattern("replaces", "English",
        r"(?:\breplac(?:es|ed|ing)|\bin (?:place|favou?r) of|\binstead of|\brather than"
        r"|\bstop(?:ped)? using|\bdropped|\bno longer(?: (?:use[sd]?|using|run|runs|on))?"
        r"|,(?: and| but)? not|\bnever (?:with|use|using)|\b(?:got rid of|ripped out|threw out)"
        r"|\b(?:switch|mov|migrat|chang)(?:ed|es?|ing)? (?:\w+ ){0,2}?from)\s+(?:(?:the|an?|with"
        r"|on|in|at|to) )*(?P<name>[\w.+#/-]+)|(?P<gone>[\w.+#/-]+) (?:is|was|has been|are"
        r"|were) (?:replaced|gone|dropped|removed|deprecated)\b|(?P<failed>[\w.+#/-]+) (?:was"
        r"|were|proved) too [^,.]+, so\b",
        "RabbitMQ replaces Redis", "The job queue is Redis", "Names what no longer holds."),
    StatementPattern("negative", "English",
        r"\b(?:not|never|no|don['’]?t|\w+n['’]t|without|avoid|instead of|rather than|stop)\b",
        "Never use npm", "Notes are kept",
        "Two statements of which one is negative are not the same."),
    StatementPattern("negative", "German",
        r"\b(?:nie|niemals|nicht|keine?[nmrs]?)\b",
        "Bearbeite nie gen/", "Die Liste ist lang", "As in English."),
    StatementPattern("negative", "French",
        r"\b(?:jamais|pas|aucune?)\b",
        "Ne modifie pas gen/", "Le pastiche est long", "As in English."),
    StatementPattern("negative", "Spanish",
        r"\b(?:nunca|jamás|ning[uú]n)\b",
        "Nunca edites gen/", "El túnel es largo", "As in English."),
    StatementPattern("negative", "Chinese",
        r"不要|不能|禁止|别",
        "不要修改 gen/", "请修改 src/", "As in English."),
    StatementPattern("negative", "Japanese",
        r"しない|禁止|ないで",
        "gen/ は編集しない", "gen/ を編集する", "As in English."),
    StatementPattern("role", "English",
        r"\b(?:owns|maintains|leads)\b",
        "Priya owns billing", "Billing is in Go", "Another person may get the role."),
    StatementPattern("reason", "English",
        r"[,;:—–-]?\s+(?:because|since)\b.*|[,;:—–-]\s*as\b.*",
        "We use uv, because pip is slow", "We use uv",
        "The reason of a statement is not its subject."),
    StatementPattern("own", "English",
        r"\b(?:I|I'm|I’m|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b|^(?:[Ll]ikes|[Pp]refers|[Ww]ants"
        r"|[Dd]islikes)\b|\b[Ii]m(?=\s+(?:an?|from|not|on|using)\b)"
        r"|^(?:[Tt]he )?[Uu]ser (?:dislikes|hates|likes|lives|loves|prefers|speaks|works)\b"
        r"|\bi(?=['’]m\b|\s+(?:am|always|do|don['’]?t|dislike|hate|like|live|love|need|never"
        r"|prefer|use|want|work)\b)",
        "I prefer tabs", "The tests run in Docker",
        "What the user says of himself is the user's.", has_case=True),
    StatementPattern("own", "German",
        r"(?i:\b(?:ich|mir|mich|mein(?:e[nmrs]?)?)\b)",
        "Ich bin farbenblind", "Meinungen stehen im Wiki", "As in English.", has_case=True),
    StatementPattern("own", "French",
        r"(?i:\b(?:je|moi|mes|mon|ma)\b|\bj['’]|\bm['’])",
        "Je travaille sous Windows", "Le mode est strict", "As in English.", has_case=True),
    StatementPattern("own", "Spanish",
        r"(?i:\b(?:yo|me|mí|mis?|conmigo)\b|\b(?:prefiero|trabajo con|vivo|uso|odio|soy|estoy)\b)",
        "Prefiero que me tutees", "El informe es diario",
        "As in English; the verb alone names the speaker.", has_case=True),
    StatementPattern("own", "Chinese",
        r"(?<!自)我(?!们)",
        "我喜欢简短的解释", "我们用 pnpm", "As in English; `我们` is the team.", has_case=True),
    StatementPattern("own", "Japanese",
        r"(?:私|僕|俺|自分)(?!たち|達)",
        "私はVimを使っています", "私たちはテストを書く", "As in English.", has_case=True),
    StatementPattern("ours", "English",
        r"\b(?:we|our|ours|us|team|the (?:project|repo|repository|codebase|code base|service"
        r"|app))\b",
        "We deploy on Fridays", "Dates are UTC", "The team is the repository's."),
    StatementPattern("here", "English",
        r"\b(?:here|this (?:project|repo|(?:mono)?repository|monorepo|code ?base|service|app"
        r"|package|crate|library|pipeline|program|site|game))\b",
        "In this repository tests are tox", "Tests are tox",
        "A statement about this project, even if it says `I`."),
    StatementPattern("here", "German",
        r"\b(?:hier|in diesem (?:Projekt|Repo\w*)|dieses (?:Projekt|Repo\w*))\b",
        "In diesem Projekt nutze ich Tabs", "Ich nutze Tabs", "As in English."),
    StatementPattern("here", "French",
        r"\b(?:ici|(?:ce|du) (?:projet|d[ée]p[ôo]t))\b",
        "Dans ce projet je mets des tabs", "Je mets des tabs", "As in English."),
    StatementPattern("here", "Spanish",
        r"\b(?:aquí|est[ea] (?:proyecto|repo\w*))\b",
        "En este proyecto uso tabs", "Uso tabs", "As in English."),
    StatementPattern("here", "Chinese",
        r"这个(?:项目|仓库|代码库)|本项目|本仓库",
        "这个项目用 pnpm", "项目用 pnpm", "As in English."),
    StatementPattern("here", "Japanese",
        r"この(?:プロジェクト|リポジトリ)|本プロジェクト",
        "このリポジトリではtox", "リポジトリはtox", "As in English."),
    StatementPattern("answers", "English",
        r"^\W*(?:(?:the|your|all)\s+)?(?:answers?|explanations?)\b",
        "The answers should be short", "The server answers in 20 ms",
        "A wish about answers is the user's."),
    StatementPattern("answer_word", "English",
        r"\b(?:answers?|repl(?:y|ies)|respond|responses?|explain|explanations?|summar\w*|speak"
        r"|talk|tone|emojis?|concise|brief|briefly|in (?:German|English|French|Spanish|Italian"
        r"|Portuguese|Dutch|Polish|Japanese|Chinese|Korean))\b",
        "Keep explanations short", "Services use gRPC",
        "In an order, a word for how the user is answered."),
    StatementPattern("answers", "German",
        r"\b(?:antworte|erklär|sieze|duze|schreib mir|fass\b.*\bzusammen|nenn mich"
        r"|red(?:e)? mit mir)\w*\b|\b(?:deine|in den) (?:Antworten|Erklärungen)\b",
        "Antworte auf Deutsch", "Die API ist langsam", "As in English."),
    StatementPattern("answers", "French",
        r"\b(?:r[ée]ponds|explique|tutoie|vouvoie|r[ée]sume|parle)\b|\b(?:tes|les) (?:r[ée]ponses"
        r"|explications)\b",
        "Réponds sans emojis", "Le serveur répond en 20 ms", "As in English."),
    StatementPattern("answers", "Spanish",
        r"\b(?:resp[oó]nd[ea]\w*|expl[ií]ca(?:me)?|tut[eé]a\w*|res[uú]me(?:lo)?|h[aá]bla(?:me)?"
        r"|contesta)\b|\b(?:tus|las) (?:respuestas|explicaciones)\b",
        "Responde en español", "El servidor respondió tarde", "As in English."),
    StatementPattern("answers", "Chinese",
        r"(?:回答|回复|解释|说明|总结)(?:我|时|要|请|应|尽量|用)|(?:请|用).{0,6}(?:回答|回复|解释)",
        "以后请用中文回答我", "这个接口回复很慢", "As in English."),
    StatementPattern("answers", "Japanese",
        r"(?:回答|返答|説明|返事|要約)(?:は|を|に|する|して)",
        "回答は簡潔に", "説明書はdocsにある", "As in English."),
    StatementPattern("decided", "English",
        r"\b(?:decided|decision|decide|chose|chosen|settled on|agreed (?:on|to)|going with"
        r"|go with|went with|because|switched (?:to|from)|moved (?:to|from)|replaced|ruled out)\b",
        "We decided on SQLite", "We use SQLite", "A decision, with its reason."),
    StatementPattern("decided", "German",
        r"\b(?:entschieden|beschlossen|einigten uns|umgestiegen)\b",
        "Wir haben uns für uv entschieden", "Wir nutzen uv", "As in English."),
    StatementPattern("decided", "French",
        r"\b(?:d[ée]cid[ée]|choisi|remplac[ée])\b",
        "On a choisi uv", "On utilise uv", "As in English."),
    StatementPattern("decided", "Spanish",
        r"\b(?:decidimos|decidido|elegimos|acordamos)\b",
        "Decidimos usar uv", "Usamos uv", "As in English."),
    StatementPattern("decided", "Chinese",
        r"决定|选定|改用",
        "我们决定用 uv", "我们用 uv", "As in English."),
    StatementPattern("decided", "Japanese",
        r"決め|決定|採用",
        "uvを採用した", "uvを使う", "As in English."),
    StatementPattern("wanted", "English",
        r"\b(?:prefer|prefers|preferred|like|likes|dislike|hate|want|wants|love|always|never"
        r"|please|don['’]?t|do not|avoid|should|must|only|instead|rather|favou?r|stop|style)\b",
        "I like tabs", "My name is Ada", "What the user wants is a preference."),
    StatementPattern("wanted", "German",
        r"\b(?:bitte|lieber|mag|möchte|keine?)\b",
        "Ich mag kurze Antworten", "Ich heiße Ada", "As in English."),
    StatementPattern("wanted", "French",
        r"\b(?:pr[ée]f[èe]re|aime|veux|toujours|jamais|sans)\b",
        "Je préfère le court", "Je m'appelle Ada", "As in English."),
    StatementPattern("wanted", "Spanish",
        r"\b(?:prefiero|gusta\w*|quiero|siempre|nunca|sin)\b",
        "Prefiero lo corto", "Me llamo Ada", "As in English."),
    StatementPattern("wanted", "Chinese",
        r"喜欢|希望|请|不要|总是|想要",
        "我喜欢简短的解释", "我叫小明", "As in English."),
    StatementPattern("wanted", "Japanese",
        r"好き|ください|お願い|してほしい|ないで|いつも",
        "簡潔にしてください", "私は山田です", "As in English."),
    StatementPattern("order", "English",
        r"^\W*(?!\w+\s+\w+\s+(?:is|are|must|should|may|can|cannot|has|have|will|needs?|uses?|go"
        r"|goes|runs?)\b)(?:add|always|ask|answer|avoid|be|call|check|commit|do not|don['’]?t|end"
        r"|explain|format|give|indent|keep|leave|make|name|never|no|not|only|please|prefer|push"
        r"|put|reply|run|show|sort|speak|start|stop|summari[sz]e|tell|test|use|write)\b",
        "Run the tests with tox", "Commit messages are short",
        "An order may hold for the user everywhere: doubt."),
    StatementPattern("corrected", "English",
        r"\b(?:not|never|don't|don’t|wrong|instead|rather than|no longer|mistake)\b",
        "Never use npm", "Use npm", "Goes among the corrections."),
    StatementPattern("question", "English",
        r"\?\s*$|^\W*(?:can|could|would|will) you\b|^\W*(?:(?:when|where) )?(?:what|how|why|which"
        r"|who|is|are|do|does|did|was|were|shall|should|can|will) ",
        "Can you rename it", "You may rename it", "A question states nothing."),
    StatementPattern("question", "every",
        r"[?？¿؟]\s*$",
        "这还对吗？", "这不对。", "A question mark."),
    StatementPattern("lasts", "English",
        r"\b(?:by default|prefer|my name is|(?<!n't )remember that|(?:we|I)(?:['’]ve"
        r"| have)? (?:decided|chose|agreed)|in general|we use|(?:is|are) (?:called|named))\b"
        r"|(?:^\W*|\b(?:must|please|should|we) )(?:always|never)\b",
        "We decided on SQLite", "The test never ends", "Holds beyond the current task."),
    StatementPattern("lasts", "German",
        r"\b(?:ab jetzt|ab sofort|künftig|grundsätzlich|merk dir)\b|^\W*(?:immer|nie)\b",
        "Ab jetzt bitte auf Englisch", "Das dauert immer lange", "As in English."),
    StatementPattern("lasts", "French",
        r"\b(?:d[ée]sormais|dor[ée]navant|[àa] partir de maintenant|retiens)\b",
        "Désormais réponds en anglais", "Le test dure toujours", "As in English."),
    StatementPattern("lasts", "Spanish",
        r"\b(?:a partir de ahora|de ahora en adelante|en adelante|recuerda que)\b",
        "A partir de ahora en inglés", "El test tarda siempre", "As in English."),
    StatementPattern("lasts", "Chinese",
        r"以后|今后|从现在起|记住",
        "以后请用中文回答", "现在请修一下", "As in English."),
    StatementPattern("lasts", "Japanese",
        r"これから|今後|覚えておいて",
        "これから日本語で書いて", "今日は日本語で書いた", "As in English."),
    StatementPattern("binds", "English",
        r"(?:[,;:–—]\W*|\b(?:and|but) )(?:always|never)\b|\b(?:each time|whenever|from now on"
        r"|in future)\b",
        "Run tox, never pytest", "Run tox", "Even an order holds on."),
    StatementPattern("passes", "English",
        r"^\W*(?:never ?mind|scratch that|not (?:now|quite|really|so|that|this|yet))\b"
        r"|^\W*(?:(?:and|but|now|so)\W+)?(?:it|this|that|these|those|you)\b(?! (?:project|repo"
        r"|repository|app|service|can|may|must|need|should)\b)",
        "It works now", "The queue works", "Cannot be understood alone."),
    StatementPattern("now", "English",
        r"\b(?:is|are|['’](?:s|re)) (?:(?:already|currently|just|now|still) )*(?:(?:build|compil"
        r"|crash|deploy|download|fail|hang|install|load|restart|start|stopp|wait)ing\b|(?:open"
        r"|running|up)\W*$)|\b(?:in|on) (?:an?other|the other|a (?:new|second|separate)"
        r"|my) (?:console|pane|screen|shell|tab|terminal|window)\b",
        "The server is running", "The server is Apache", "What a program does at the moment."),
    StatementPattern("now", "English",
        r"\b(?:right now|at the moment|this minute)\b",
        "The server is down right now", "The server is small",
        "It ends with the session: not kept."),
    StatementPattern("now", "German",
        r"\b(?:gerade|im Moment|momentan|im Augenblick)\b",
        "Der Server ist gerade weg", "Die Linie ist rot", "As in English."),
    StatementPattern("now", "French",
        r"\b(?:en ce moment|pour l['’]instant)\b",
        "Le serveur est en panne en ce moment", "Le serveur est petit", "As in English."),
    StatementPattern("now", "Spanish",
        r"\b(?:ahora mismo|en este momento)\b",
        "El servidor está caído ahora mismo", "El servidor es pequeño", "As in English."),
    StatementPattern("now", "Chinese",
        r"目前正|暂时|正在",
        "服务器正在重启", "服务器在上海", "As in English."),
    StatementPattern("now", "Japanese",
        r"今は|現在は|今のところ",
        "今は落ちている", "サーバは東京にある", "As in English."),
    StatementPattern("unasserted", "English",
        r"^\W*(?:(?:as an|for) example|assum\w+|e\.g\.|hypothetically|if we (?:had|were"
        r"|\w+ed)\b.*\bwould|imagine|maybe|perhaps|let(?:['’]s| us) (?:assume|pretend|say)"
        r"|suppos\w+|what if)\b|^\W*\w+ (?:(?:me|us|out) )?(?:how|what|where|whether|which|why)\b"
        r"|\b(?:I wonder|whether|joking|kidding|haha\w*|lol)\b|[;:]-?[)D](?=\s|$)|\b(?:readme"
        r"|docs?|documentation|wiki|tutorial|article|page|comment|error|log|message|it"
        r"|[\w-]+\.\w{1,5}) (?:still )?(?:claims?|reads|says?|said|states?|tells)\b"
        r"|\baccording to\b|\b(?:an?other|the other) (?:company|project|repo|team)\b|^\W*(?:he"
        r"|she) (?:said|says|thinks)\b|^\W*(?:he|she|my \w+(?: \w+)?|(?-i:(?!The|Our"
        r"|User)[A-Z]\w+)) (?:dislikes|hates|likes|loves|prefers|wants)\b|\b(?:for now"
        r"|for (?:this|the) (?:change|moment|task)|(?:just )?this (?:once|time)|for today"
        r"|in this (?:branch|case|class|commit|file|function|method|pr|test))\b"
        r"|\b(?:the )?(?:first|former|last|latter|other|second|third) (?:approach|idea|one|option"
        r"|variant|version|way)\b|\boption \w\b",
        "Suppose we used Kafka", "We use Kafka",
        "Assumptions, jokes, quotations, others' wishes, and what holds only now."),
    StatementPattern("unasserted", "German",
        r"^\W*(?:stell dir vor|angenommen|nehmen wir an|was wäre)\b|\b(?:für (?:diese[ns]?"
        r"|jetzt)\b.*\b(?:Test|Mal|Aufgabe|Commit)|nur dieses Mal)\b",
        "Stell dir vor, wir nutzen Kafka", "Wir nutzen Kafka", "As in English."),
    StatementPattern("unasserted", "French",
        r"^\W*(?:et si|imagin\w+|suppos\w+|admettons)\b|\b(?:pour cette fois)\b",
        "Imagine qu'on utilise Kafka", "On utilise Kafka", "As in English."),
    StatementPattern("unasserted", "Spanish",
        r"^\W*(?:imagina\w*|sup[oó]n\w*|y si)\b|\bsolo por esta vez\b",
        "Imagina que usamos Kafka", "Usamos Kafka", "As in English."),
    StatementPattern("unasserted", "Chinese",
        r"^\W*(?:假设|假如|如果|要是|比如|例如)|这一次|只是这次",
        "假设我们用 Kafka", "我们用 Kafka", "As in English."),
    StatementPattern("unasserted", "Japanese",
        r"^\W*(?:例えば|もし|仮に)|今回だけ|とした(?:ら|場合)",
        "もしKafkaを使うなら", "Kafkaを使う", "As in English."),
    StatementPattern("unasserted", "English",
        r"\b(?:for|in|during) (?:only |just )?(?:this|that|the current|today['’]s) (?:one |single )?"
        r"(?:session|conversation|chat|run|test|commit|question|time)\b|\b(?:this|that) (?:time"
        r"|session|commit) only\b",
        "Skip the slow tests for this session", "A session ends after an hour",
        "What holds for one session or one time is not kept."),
    StatementPattern("unasserted", "German",
        r"\b(?:für|in) (?:nur )?diese[nmrs]?\b(?: einen| eine)? ?(?:Sitzung|Session|Gespräch|Lauf"
        r"|Test|Commit|Frage|Mal)\b|\b(?:diesmal|dieses Mal|ausnahmsweise|vorerst)\b",
        "Für diese Sitzung bitte kurz", "Eine Sitzung endet nach einer Stunde", "As in English."),
    StatementPattern("unasserted", "French",
        r"\b(?:pour|dans|pendant) (?:cette|ce|cet) (?:seule? )?(?:session|conversation|fois|commit"
        r"|test|essai|question)\b|\bcette fois\b",
        "Pour cette session, saute les tests", "Une session dure une heure", "As in English."),
    StatementPattern("unasserted", "Spanish",
        r"\b(?:por|para|en|durante) est[ea] (?:sola? )?(?:sesión|conversación|vez|commit|prueba"
        r"|pregunta)\b|\b(?:esta vez|por ahora)\b",
        "Por esta vez usa SQLite", "Una sesión dura una hora", "As in English."),
    StatementPattern("unasserted", "Chinese",
        r"(?:这|本)(?:一)?(?:次|回)|(?:这个|本次)会话",
        "这次就不用写测试了", "会话一小时后过期", "As in English."),
    StatementPattern("unasserted", "Japanese",
        r"今回(?:は|だけ|のみ)|この(?:セッション|会話|コミット)(?:だけ|では|のみ)|とりあえず",
        "今回は英語で答えて", "セッションは一時間で切れる", "As in English."),
    StatementPattern("writes", "English",
        r"^\W*(?:please )?(?:draft|write|rewrite|rephrase|translate|compose|summari[sz]e"
        r"|proofread)\b.{0,80}?(?::|\b(?:says?|saying|that)\b)",
        "Draft a mail: we deploy daily", "Write tests with pytest",
        "What the agent is asked to write is not stated."),
    StatementPattern("writes", "German",
        r"^\W*(?:schreib\w*|übersetz\w*|formulier\w*|verfass\w*)\b.{0,80}?:",
        "Schreib einen Tweet: Wir nutzen Rust", "Schreib Tests mit pytest", "As in English."),
    StatementPattern("writes", "French",
        r"^\W*(?:[ée]cris|traduis|r[ée]dige|reformule)\b.{0,80}?(?::|\bqui dit\b)",
        "Traduis : nous testons toujours", "Écris des tests courts", "As in English."),
    StatementPattern("writes", "Spanish",
        r"^\W*(?:escribe|traduce|redacta)\b.{0,80}?(?::|\bque diga\b)",
        "Traduce: siempre cerramos", "Escribe tests cortos", "As in English."),
    StatementPattern("writes", "Chinese",
        r"(?:翻译|写一(?:封|条|个|段)|改写).{0,20}[:：]",
        "翻译成英文:我们用 Redis", "翻译文件在 i18n/", "As in English."),
    StatementPattern("writes", "Japanese",
        r"(?:訳して|書き直して|翻訳して).{0,10}[:：]|次の文",
        "次の文を訳して:常に試す", "翻訳は i18n/ にある", "As in English."),
    StatementPattern("retracts", "English",
        r"^\W*(?:(?:oh|ah|wait|no|sorry|hm+)\W+)*(?:(?:just |only )?(?:kidding|joking)"
        r"|forget (?:that|it|what i said)|scratch that|never ?mind|ignore that|i take (?:that"
        r"|it) back|leave (?:it|the \w+) as (?:it is|they are))\b",
        "Wait, no, forget that", "Forget-me-nots are blue",
        "A retraction cancels the sentence before."),
    StatementPattern("retracts", "German",
        r"^\W*(?:(?:ach|nein|doch|halt|moment|ne)\W+)*(?:vergiss (?:es|das)"
        r"|war nur (?:ein )?(?:spaß|scherz)|doch nicht|lass (?:es|das))\b",
        "Ach nein, vergiss es", "Vergiss nie die Tests", "As in English."),
    StatementPattern("retracts", "French",
        r"^\W*(?:(?:non|ah|euh|attends)\W+)*(?:oublie (?:ça|cela)|laisse tomber|je plaisante"
        r"|c['’]était une blague)",
        "Non, oublie ça", "Oublie-moi dans la liste", "As in English."),
    StatementPattern("retracts", "Spanish",
        r"^\W*(?:(?:no|ah|espera|bueno)\W+)*(?:olv[ií]dal[oa]|era broma|d[eé]jalo|mejor no)\b",
        "No, olvídalo", "Olvidar el token es grave", "As in English."),
    StatementPattern("retracts", "Chinese",
        r"^\W*(?:算了|当我没说|开玩笑|不用了|忘了吧)",
        "算了，保持原样", "计算了总数", "As in English."),
    StatementPattern("retracts", "Japanese",
        r"^\W*(?:(?:いや|やっぱり)[、,]?)*(?:忘れて|取り消し|冗談|なしで)",
        "やっぱり忘れて", "忘れ物は棚にある", "As in English."),
    StatementPattern("henceforth", "English",
        r"\b(?:from (?:now|today|here) on|henceforth|as of (?:now|today)|in (?:the )?future)\b",
        "From now on commits are squashed", "The future is open",
        "What begins now ends what was said of the same subject before."),
    StatementPattern("henceforth", "German",
        r"\b(?:ab (?:jetzt|sofort|heute|morgen)|künftig|zukünftig|in zukunft|fortan)\b",
        "Commits werden künftig zusammengeführt", "Die Zukunft ist offen", "As in English."),
    StatementPattern("henceforth", "French",
        r"\b(?:désormais|dorénavant|à partir (?:de maintenant|d['’]aujourd['’]hui)|à l['’]avenir)\b",
        "Désormais on livre le mardi", "L'avenir est ouvert", "As in English."),
    StatementPattern("henceforth", "Spanish",
        r"\b(?:a partir de (?:ahora|hoy)|desde (?:ahora|hoy)|(?:de ahora )?en adelante)\b",
        "A partir de ahora usamos main", "Pasa adelante", "As in English."),
    StatementPattern("henceforth", "Italian",
        r"\b(?:d['’]ora in (?:poi|avanti)|da (?:oggi|adesso)(?: in poi)?|in futuro)\b",
        "D'ora in poi si usa main", "Il futuro è aperto", "As in English."),
    StatementPattern("henceforth", "Portuguese",
        r"\b(?:a partir de (?:agora|hoje)|de agora em diante|doravante)\b",
        "A partir de agora usamos main", "O diante é claro", "As in English."),
    StatementPattern("henceforth", "Polish",
        r"\b(?:od (?:teraz|dziś|dzisiaj)|odtąd|w przyszłości)\b",
        "Od teraz używamy main", "Teraz jest dobrze", "As in English."),
    StatementPattern("henceforth", "Turkish",
        r"\b(?:bundan (?:sonra|böyle)|şu andan itibaren|artık)\b",
        "Bundan sonra main kullanıyoruz", "Sonra bakarız", "As in English."),
    StatementPattern("henceforth", "Chinese",
        r"以后|从现在(?:起|开始)|今后|从今(?:天)?起",
        "以后用 main 分支", "用 main 分支", "As in English."),
    StatementPattern("henceforth", "Japanese",
        r"今後|これから(?:は|、)|以後|今日から",
        "今後は main を使う", "main を使う", "As in English."),
    StatementPattern("switched", "English",
        r"\b(?:switched|moved|migrated|converted|upgraded|downgraded|renamed|rewritten|rewrote"
        r"|took over|taken over)\b",
        "We switched to ruff in May", "The switch is red",
        "A finished change ends what was said of the same subject before."),
    StatementPattern("switched", "German",
        r"\b(?:umgestiegen|gewechselt|umgezogen|umbenannt|umgestellt|migriert|übernommen)\b",
        "Wir sind auf uv umgestiegen", "Der Umstieg ist geplant", "As in English."),
    StatementPattern("switched", "French",
        r"\b(?:pass[ée]e?s? (?:à|sur|au|aux)\b|(?:migr|renomm|remplac)[ée]e?s?\b)",
        "On est passés à uv", "Le mot de passe est long", "As in English."),
    StatementPattern("switched", "Spanish",
        r"\b(?:(?:cambiamos|pasamos|migramos|cambiado|pasado|migrado) (?:a|al)|renombrad[oa]s?)\b",
        "Hemos pasado a pnpm", "El paso es corto", "As in English."),
    StatementPattern("forgets", "English",
        r"^\W*(?:(?:please|and|so|ok(?:ay)?|now)\W+)*forget (?:the fact )?that (?=\S+ \S+)",
        "Forget that I work on Fridays", "Forget that",
        "The user asks that something remembered is removed."),
    StatementPattern("forgets", "German",
        r"^\W*(?:bitte\W+)?verg(?:iss|esst|essen sie)(?: bitte)?,? dass\b",
        "Vergiss, dass ich freitags arbeite", "Vergiss nicht, dass ich komme", "As in English."),
    StatementPattern("forgets", "French",
        r"^\W*(?:s['’]il (?:te|vous) pla[iî]t\W+)?oublie[sz]? (?:le fait )?qu(?:e\b|['’])",
        "Oublie que je travaille le vendredi", "Oublie ça", "As in English."),
    StatementPattern("forgets", "Spanish",
        r"^\W*(?:por favor\W+)?olv[ií]d(?:a|e|ate|ese)(?: de)? que\b",
        "Olvida que trabajo los viernes", "No olvides que trabajo", "As in English."),
    StatementPattern("forgets", "Italian",
        r"^\W*(?:per favore\W+)?(?:dimentic(?:a|ati|hi)|scorda(?:ti)?) che\b",
        "Dimentica che lavoro il venerdì", "Non dimenticare che lavoro", "As in English."),
    StatementPattern("forgets", "Portuguese",
        r"^\W*(?:por favor\W+)?esque(?:ça|ce)(?:-se)?(?: de)? que\b",
        "Esqueça que eu trabalho às sextas", "Não esqueça que trabalho", "As in English."),
    StatementPattern("forgets", "Polish",
        r"^\W*(?:proszę\W+)?zapomnij(?:cie)?,? że\b",
        "Zapomnij, że pracuję w piątki", "Nie zapomnij, że pracuję", "As in English."),
    StatementPattern("forgets", "Turkish",
        r"\bunut(?:un)?\W*$",
        "Cuma günleri çalıştığımı unut", "Cuma günü gelmeyi unutma", "As in English."),
    StatementPattern("forgets", "Russian",
        r"^\W*(?:пожалуйста\W+)?забудь(?:те)?,? что\b",
        "Забудь, что я работаю по пятницам", "Не забудь, что я работаю", "As in English."),
    StatementPattern("forgets", "Japanese",
        r"(?:という)?こと[はを]忘れて(?:ください|下さい)?\W*$",
        "金曜日に働くことは忘れてください", "金曜日に忘れてはいけない", "As in English."),
    StatementPattern("forgets", "Chinese",
        r"^\W*请?忘(?:掉|记|了)(?=[^，。]{4})",
        "忘掉我周五在家办公", "别忘了我周五在家办公", "As in English."),
    StatementPattern("forgets", "Hindi",
        r"^\W*(?:कृपया\W+)?भूल जा(?:ओ|इए|एँ|ना)\s+कि\s",
        "भूल जाओ कि मैं शुक्रवार को काम करता हूँ", "मत भूलो कि मैं काम करता हूँ", "As in English."),
    StatementPattern("small_talk", "English",
        r"^\W*(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|great|nice|cool|perfect|good|yes|yep"
        r"|no(?!\s+[^\W_])|sure|sorry|well done|looks good|go on|continue|bye)\b.{0,30}$",
        "thanks, looks good", "The thanks page is static", "Politeness states nothing."),
    StatementPattern("pronoun", "English",
        r"^\W*(?:(?:and|but|no|now|so)\W+)?(?:it|they|that|this|these|those)(?:['’]\w+)?\b"
        r"(?! (?:project|repo|repository|app|service)\b)",
        "It listens on 8417", "The server listens on 8417",
        "A correction that is completed from what it corrects."),
    StatementPattern("pronoun", "German",
        r"^\W*(?:nein\W+)?(?:er|sie|es|der|die|das)\s+(?-i:(?=[a-zäöü]))",
        "Der steht jetzt in Fulda", "Der Server steht in Fulda", "As in English."),
    StatementPattern("pronoun", "French",
        r"^\W*(?:non\W+)?(?:ils?|elles?|ce|ça|cela)\b|^\W*c['’]",
        "Elle ferme le mardi", "La boutique ferme le mardi", "As in English."),
    StatementPattern("pronoun", "Spanish",
        r"^\W*(?:no\W+)?(?:es[oa]s?|est[oa]s?|él|ell[oa]s?)\b",
        "Eso está en la vía 5", "El tren sale de la vía 5", "As in English."),
    StatementPattern("pronoun", "Chinese",
        r"^\W*(?:不是?\W+)?(?:它们?|这个?|那个?|现在)",
        "它在五楼", "会议在五楼", "As in English."),
    StatementPattern("pronoun", "Japanese",
        r"^\W*(?:それ|これ|あれ|今は)",
        "それは棚にあります", "鍵は棚にあります", "As in English."),
    StatementPattern("points", "English",
        r"^\W*(?:\w+\W+)?(?:it|its|line|that|the|them|there|these|this|those|you)\b",
        "The second column is cut", "Responses are camelCase",
        "About a definite thing of the task."),
    StatementPattern("definite_order", "English",
        r"^\W*(?!(?:after|an?|and|as|at|before|but|by|for|from|in|my|no|of|on|or|our|they|to|we"
        r"|when|with|your|(?:it|its|line|that|the|them|there|these|this|those"
        r"|you))\b)\w+ (?:(?:away|back|down|in|off|on|out|over|up|with) )?(?:(?:it|its|line|that"
        r"|the|them|there|these|this|those|you)|an?|me|my|our|your)\b",
        "Drop the second column", "Use British spelling", "An order about a definite thing."),
    StatementPattern("recurs", "English",
        r"\b(?:after|at|before|on|unless|until|when|with)\b.{0,20}\b(?:each|every\w*|any\w*|I|we"
        r"|you)\b",
        "Hide it before every demo", "Hide it", "Comes again: not of this turn."),
    StatementPattern("general_question", "English",
        r"^\W*(?:what(?:['’]s| is| are) (?!the\b|our\b|my\b|this\b|that\b|it\b|wrong\b)|what is the"
        r" difference between\b|what does .{1,40} (?:mean|do)\b|explain (?!this\b|why\b|our\b|my\b"
        r"|how (?:we|our)\b)|how do(?:es)? (?!we\b|our\b|I\b|you\b|this\b|the\b).{1,40} work\b)"
        r"|\bin general\b",
        "What is a mutex?", "What is our release day?", "Asks about the world: recall is stricter."),
    StatementPattern("owned", "English",
        r"\b(?:my|our)\s+(\w+)",
        "What is my name?", "What is the name?", "A common word names a subject after `my`."),
    StatementPattern("asks", "English",
        r"^\W*(?:what|which|when)\b|\?\W*$",
        "When did we move?", "We moved in May", "A question about days needs no other subject."),
)
# fmt: on
