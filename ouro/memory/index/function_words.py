"""Words that hold a sentence together and name no subject, in languages other than English; and
whether a text is in English.

Articles, pronouns, prepositions, conjunctions, auxiliary verbs and question words. Without them
two French sentences have `est`, `les` and `dans` in common, and count as near whatever they say.
English ones are `STOP_WORDS` of the index.

A word that is also a common noun or verb of English or a name in programs is left out of the lists:
`ci`, `comment`, `dir`, `io`, `main`, `man`, `mit`, `os`, `var`, `war`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, lru_cache
from itertools import chain

from ouro.memory.index.foreign_task_words import foreign_words
from ouro.memory.index.words import STOP_WORDS, WORD
from ouro.utils.late_pattern import late_pattern

_FUNCTION_WORDS = {
    "German": """
        aber als am auch auf aus bei beim bis das dass dem den der des die dies diese diesem diesen dieser dieses du
        durch ein eine einem einen einer eines er es euch euer für gegen habe haben hat hatte ich ihr ihre im ist
        jede jedem jeden jeder jedes kann kein keine können mehr mein meine mich mir muss müssen nach nicht noch nur
        ob oder ohne schon sehr seit sich sie sind soll sollen um und uns unser unsere unserem unseren unserer unter
        vom von vor wann warum weil welche welchem welchen welcher welches wem wen wenn wer werden wessen wie wir
        wird wo woher wohin womit wurde wurden zu zum zur zwischen über
        """,
    "French": """
        au aussi aux avait avec avoir ce ces cet cette chez dans de des dont du elle elles en entre est et il ils j
        jamais je l la le les leur leurs lui ma mais me mes moi mon n ne nos notre nous on ont ou où par pas pour
        pourquoi qu quand que quel quelle quelles quels qui quoi sa sans se ses son sont sous sur ta te tes toi ton
        tu très un une vers vos votre vous à ça été être
        """,
    "Spanish": """
        al como con cuando cuál cuáles cuándo cuánto cómo de del desde donde dónde el ella ellas ellos en entre es
        esa esas ese eso esos esta estar estas este esto estos está están fue ha haber han hasta hay jamás la las le
        les lo los me mi mis muy más ni nos nunca nosotros nuestra nuestras nuestro nuestros o para pero por que
        quien quienes quién qué se ser sin sobre son su sus también te tu tus tú un una unas uno unos usted ustedes y
        ya yo él
        """,
    "Portuguese": """
        ao até com como da das de desde do dos e ela elas ele eles em entre essa esse esta este está eu foi há isso
        isto já mais mas me meu minha muito na nas no nos nossa nossas nosso nossos não nós o onde ou para pela pelo
        por qual quais quando quanto que quem se sem ser seu sobre sua são também tem têm um uma umas uns você à é
        """,
    "Italian": """
        anche che chi come con cosa da dal dalla dei degli del della delle dello di dove e era essere fra gli ha
        hanno il la le lei lo loro lui ma mi mia mio nei nel nella noi non nostra nostro o per perché più quale quali
        quando quanto quella quello questa questo si sono sul sulla ti tra tu un una uno voi è
        """,
    "Dutch": """
        bij dat de deze die dit een en er geen heeft hebben het hij hoe ik jij je jullie maar mij naar niet nog of om
        onder ons onze ook op over te tegen tot tussen uit van voor waar waarom wanneer wat welke wie wij wordt
        worden zij zijn zonder
        """,
    "Russian": """
        а без бы был была было были быть в вам вас во вы где для до его ее ей если есть еще ещё её же за и из или им
        их к как какая какие каких какой какую ко когда кого кому которая которое которые который кто куда ли меня
        мне мой мои моя мы на над нам нас наш наша наше наши не ни но о об он она они от откуда по под почему при с
        свой сколько со та также те то только тот ты у уже чем через что чём эта эти это этот я
        """,
    "Polish": """
        a albo ale bardzo bez bo być był była było były co czy czyli dla do dlaczego gdy gdzie go i ich ile ja jak
        jaka jaki jakie jako je jego jej jest jestem jeszcze jeśli już każda każde każdy kiedy kto która które który
        lub ma mam mamy mi mnie moja moje może można mój mu my na nad nam nas nasz nasza nasze nich nie niż o od on
        ona oni oraz po pod przed przez przy są się sobie ta tak także tam te tego tej ten też to tu tylko tym ty u w
        we więc wy z za ze że żeby
        """,
    "Turkish": """
        ama ancak bana bazı ben beni benim bir biz bize bizim bu bunlar bunu bunun çok da daha de diye değil en gibi
        hangi hem her hiç için ile ise kadar ki kim mı mi mu mü nasıl ne neden nerede o olan olarak oldu olur onlar
        onu onun sen senin siz sonra şu tüm ve veya ya yok zaman şey
        """,
    "Hindi": """
        अगर अपना अपनी अपने अब आप इन इस इसका इसकी इसके इसमें इसे उन उनका उनकी उनके उस उसका उसकी उसके उसे एक ऐसा ऐसे और
        कब कभी करके का कि कितना कितनी कितने किस किसी की कुछ के केवल को कोई कौन क्या क्यों गया गयी गई गए जब जहाँ जा
        जाता जाती जाते जैसे जो तक तब तुम तो था थी थे दिया द्वारा न नहीं ने पर पास फिर बहुत बाद भी मुझे में मेरा मेरी
        मेरे मैं यदि यह यहाँ या ये लिए लेकिन वह वहाँ वाला वाली वाले वे सब सभी साथ से हम हमारा हमारी हमारे हमें ही हुआ
        हुई हुए हूँ है हैं हो होता होती होते होना
        """,
}
"""By language; what is written with blanks between words."""
_LAST_LATIN_LETTER = "\u024f"
_ALL = frozenset(" ".join(_FUNCTION_WORDS.values()).split())
_HIRAGANA_ONLY = late_pattern(r"[\u3040-\u309f]+")
"""Endings and particles of Japanese; a word that names something rarely has nothing else."""
_CHINESE_FUNCTION = late_pattern(r"[的了是吗呢吧么什怎哪谁这那我你他她它们把被在和就都也没]")


def is_function_word(word: str) -> bool:
    """Whether a word in lower case names no subject. In a text without blanks a word is a group of
    characters: one of hiragana alone, or with a pronoun, a particle or a question word of Chinese.
    """
    is_group = _HIRAGANA_ONLY.fullmatch(word) or _CHINESE_FUNCTION.search(word)
    return word in _ALL or bool(is_group)


@lru_cache(maxsize=1_024)
def is_in_english(text: str) -> bool:
    """Whether a text is in English, as far as its words tell: no more of them are function words or
    words of tasks of other languages, or in another script, than are function words of English.
    One word with accents in more than two words does not count: English texts have names and loans
    such as `Zürich` and `café`. A text of names alone counts as English.
    """
    words = WORD.findall(text.lower())
    foreign_count = sum(map(_is_foreign, words))
    accented_count = sum(not word.isascii() and not _is_foreign(word) for word in words)
    allowed_count = 1 if len(words) > 2 else 0
    english_count = sum(word in _ONLY_ENGLISH for word in words)
    return foreign_count + max(0, accented_count - allowed_count) <= english_count


def _is_foreign(word: str) -> bool:
    is_in_other_script = max(word) > _LAST_LATIN_LETTER
    return is_in_other_script or word in _ONLY_FOREIGN or word in foreign_words()


@lru_cache(maxsize=1_024)
def language_of(text: str) -> str:
    """The language of a text, if its words or its script tell: English, one of those with lists here,
    or of `_LANGUAGES_BY_SCRIPT`. Empty if they do not, as for a text of names, or of fewer than
    `_MIN_TELLING_WORDS` words that belong to one language.
    """
    for language, script in _LANGUAGES_BY_SCRIPT.items():
        if len(script.findall(text)) >= _MIN_CHARACTERS:
            return language
    if is_in_english(text):
        return "English" if set(WORD.findall(text.lower())) & _ONLY_ENGLISH else ""
    words = filter(_is_foreign, WORD.findall(text.lower()))
    counts = Counter(chain.from_iterable(map(_languages_of_word, words)))
    (best, most), (_, second) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    return best if most >= _MIN_TELLING_WORDS and most > second else ""


@cache
def _words_by_language() -> dict[str, frozenset[str]]:
    """The function words of each language that is written with blanks between words."""
    return {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}


def _languages_of_word(word: str) -> list[str]:
    return [language for language, words in _words_by_language().items() if word in words]


_MIN_TELLING_WORDS = 2
_MIN_CHARACTERS = 2
_LANGUAGES_BY_SCRIPT = {
    "Japanese": late_pattern(r"[\u3041-\u309f\u30a1-\u30fa]"),
    "Korean": late_pattern(r"[\uac00-\ud7a3]"),
    "Thai": late_pattern(r"[\u0e01-\u0e4e]"),
    "Chinese": late_pattern(r"[\u4e00-\u9fff]"),
}
"""Scripts of one language, in the order in which they decide: Japanese has Chinese characters, too."""
_ALSO_FOREIGN = frozenset(
    "a am an as at d do had he her i in m me no on re s so t to us was will".split()
)
"""English function words that are words of other languages, too: they tell nothing of the language."""
_ONLY_ENGLISH = STOP_WORDS - _ALL - _ALSO_FOREIGN
_ONLY_FOREIGN = _ALL - STOP_WORDS - frozenset("era go over pour sin ten ton".split())
