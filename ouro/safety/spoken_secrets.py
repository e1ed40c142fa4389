"""Finds secrets that a sentence tells: "the password of the database is hunter2".

They have no shape of their own, so that only the words around them show what they are. Memory
refuses them. Elsewhere they are not masked, because a wrong guess would change what was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ouro.utils.late_pattern import late_pattern

_NAMES_OF_PASSWORDS = (
    r"\w{0,40}(?:pass(?:word|[ -]?phrase|code|wort|ord)|kennwort|wachtwoord|lösenord(?:et)?"
    r"|adgangskode)"
    r"|mots? de passe|phrase secrète|contraseña|clave|parola(?: d['’]ordine)?|senha|palavra-passe"
    r"|hasło|heslo|jelszó|jelszava|salasana|şifre(?:si|niz)?|parolă|парол[ьяі]\w?|лозинка"
    r"|κωδικός|συνθηματικό|كلمة (?:المرور|السر)|סיסמה|הסיסמה|पासवर्ड"
    r"|pwd?|passwd|mdp|(?:recovery|seed|backup|mnemonic)[ -]?phrase|seed words"
    r"|wiederherstellungs(?:phrase|wörter)|phrase de récupération|frase (?:semilla|de recuperación)"
    r"|seed[ -]фраза"
)
_NAMES_OF_TOKENS = (
    r"(?:api|access|auth|refresh|bot|bearer)?[ _-]?token|secret|passcode|(?:api|access|secret"
    r"|signing|"
    r"encryption|licen[cs]e|recovery|chiave|clé)[ _-]?(?:key|api)|geheimnis|zugriffsschlüssel"
    r"|secreto|segreto|segredo|jeton|токен|секрет"
)
_NAMES_OF_PINS = (
    r"pin(?:[ -]?(?:code|nummer|number|kod|код))?|пин(?:-?код)?|code pin|código pin"
    # Codes for one use:
    r"|otp|(?:one[ -]time|verification|confirmation|security|sms|2fa|mfa)[ -](?:code|pin)"
    r"|(?:einmal|bestätigungs|sicherheits)code|code de (?:vérification|confirmation|sécurité)"
    r"|código de (?:verificación|confirmación|seguridad|verificação|confirmação|segurança)"
    r"|codice di (?:verifica|conferma)|код подтверждения|(?:doğrulama|onay) kodu"
    r"|رمز (?:التحقق|التأكيد)"
)
_OF_WHAT = (
    r"(?:[ \t]+(?:for|of|to|on|at|in|from|für|von|vom|der|des|zum|zur|im|de|del|della|di|du|da|do"
    r"|dla|para|pour|per|van|voor|till|для|от|к|του|της)\b(?:[ \t]+[^\s.:;,!?]+){1,5}?)?"
)
_IS_WORDS = (
    r"(?:[ \t]+(?:(?:(?:is|was|has been)[ \t]+)?(?:set|reset|changed)[ \t]+to|is|was|are|remains"
    r"|ist|lautet|war|heißt|est|es|è|é|era|jest|to|je|är|er|on|είναι"
    r"|это|є|हि|है|هي|הוא|היא|=)(?:[ \t]+(?:now|still|always|just|currently|jetzt|ahora|adesso"
    r"|agora))?"
    r"(?:[ \t]*:)?[ \t]+|[ \t]{0,2}[:：—–][ \t]*|[ \t]+-[ \t]+|[ \t]*(?:[:：]|=>|->)[ \t]*)"
)
_IN_BRACKETS = r"(?:[ \t]*[(\[][^)\]\n]{0,40}[)\]])?"
_VALUE_GROUP = (
    r"(?P<value>\"[^\"\n]{3,80}\"|'[^'\n]{3,80}'|`[^`\n]{3,80}`|“[^”\n]{3,80}”"
    r"|«[^»\n]{3,80}»|[^\s\"'`“«]\S{2,120})"
)
_SECRET_WORD = late_pattern(rf"(?i)(?:{_NAMES_OF_PASSWORDS}|{_NAMES_OF_TOKENS}|{_NAMES_OF_PINS})s?")
_WORD_START = r"(?<!\w)"

# Three ways to tell a secret: `the password of the database is hunter2`, `password hunter2`, and
# `hunter2 is the password`.
_NAME_IS_VALUE = late_pattern(
    rf"(?i){_WORD_START}(?:(?P<password>{_NAMES_OF_PASSWORDS})|(?P<pin>{_NAMES_OF_PINS})"
    rf"|(?P<token>{_NAMES_OF_TOKENS}))(?P<plural>s)?"
    rf"[*_]{{0,2}}{_IN_BRACKETS}{_OF_WHAT}[*_]{{0,2}}{_IS_WORDS}[*_]{{0,2}}{_VALUE_GROUP}(?P<rest>[^\n]{{0,80}})"
)
_NAME_VALUE = late_pattern(
    rf"(?i){_WORD_START}(?:(?P<password>{_NAMES_OF_PASSWORDS})|(?P<pin>{_NAMES_OF_PINS})|(?P<token>{_NAMES_OF_TOKENS}))"
    rf"[ \t]+{_VALUE_GROUP}(?P<rest>[^\n]{{0,80}})"
)
_VALUE_IS_NAME = late_pattern(
    rf"(?i)(?<!\S){_VALUE_GROUP}[ \t]+(?:is|was|ist|est|es|è|é|jest|это|(?P<as>as|als|comme|como|come"
    rf"|jako|как))[ \t]+"
    r"(?:(?:the|my|our|your|his|her|das|die|der|mein|unser|le|la|mon|notre|el|mi|il|a|o)[ \t]+)?"
    rf"(?:[^\s.:;,!?]+[ \t]+){{0,3}}?(?:(?P<password>{_NAMES_OF_PASSWORDS})|(?P<pin>{_NAMES_OF_PINS})"
    rf"|(?P<token>{_NAMES_OF_TOKENS}))"
    r"(?P<rest>(?=[ \t]*(?:[.,;!?)]|$|\n|[ \t](?:for|of|on|für|von|de|del|di|da|pour|para|для)\b)))"
)
_EAST_ASIAN = late_pattern(
    r"(?i)(?:(?P<password>密码|密碼|口令|パスワード|暗証番号|비밀번호|암호)"
    r"|(?P<pin>验证码|驗證碼|认证码|認証コード|確認コード|인증번호)|(?P<token>令牌|密钥|密鑰|トークン|토큰))"
    r"[ \t]{0,2}(?:[是为為はが은는이가]"
    r"|就是)?[ \t]{0,2}[:：]?[ \t]{0,2}[「『“\"'`]?(?P<value>[!-&(-~]{4,80})(?P<rest>)"
)

_QUOTES = "\"'`“”«»"
_SMALL_WORDS = frozenset(
    "a an the this that these those not no never always also only just still now then per with in"
    " on at by to from for of and or if"
    " as it its your our my their his her same one any each every all both here there"
    " see ask use via what where when why how who which".split()
)
_DESCRIBING_WORDS = _SMALL_WORDS | frozenset(
    # What a sentence about a secret says of it; not a secret.
    "none null nil true false yes todo tbd unknown empty"
    " required optional missing wrong correct right valid invalid good bad weak strong safe"
    " unsafe new old different unique random"
    " secret private public confidential sensitive here there below above elsewhere broken gone"
    " stale fresh long short longer"
    " shorter set unset kept sent lost read written given taken known hidden shown left due"
    " needed ok okay fine case string str"
    " int bytes integer text number bool boolean object array list dict char varchar uuid jwt see"
    " ask use via what where when why"
    " how who which simplicity patience expired stored hashed salted plain plaintext cleartext"
    " encrypted default blank"
    " ist nicht kein keine ein eine der die das den dem im in auf bei von falsch richtig gültig"
    " ungültig geheim leer erforderlich"
    " optional nötig lang kurz neu alt sicher unsicher unbekannt hier dort immer nie noch"
    " le la les un une des du de dans sur par pas ne non faux fausse bon bonne requis requise"
    " obligatoire facultatif secrète"
    " vide inconnu nouveau ancien valide invalide trop ici"
    " el los las una del en no por incorrecta incorrecto correcta correcto obligatoria"
    " obligatorio opcional secreta secreto vacía"
    " nueva vieja válida inválida aquí muy il lo gli nel non errata corretta scaduta segreta"
    " vuota nuova qui"
    " o os as um uma na no não errada correta vazia nova fraca forte wymagane nieprawidłowe puste"
    " het een niet verplicht leeg"
    " неверный неправильный обязателен нужен не в на это хранится пуст пустой".split()
)
_DESCRIBING_ENDING = late_pattern(
    r"(?i)(?:ed|ing|able|ible|ible?s|ional|ive|ory|ary|less|ful|wise|ly|ent|ant|lich|bar|iert"
    r"|laufen|speichert|setzt"
    r"|schlüsselt|é|ée|és|ées|toire|ado|ada|ido|ida|ato|ata|uto|uta|abile|ibile|orio|oria|ável"
    r"|ível|ane|any|only|sensitive"
    r"|specific|lived|free|based|bound|safe|wide|side|scoped|ready)$"
)
_TECHNICAL_TERM = late_pattern(
    r"(?i)(?:v?\d+(?:\.\d+)*[a-z]{0,2}|\d+-[a-z]+(?:-[a-z]+)?|(?:sha|aes|md|rs|hs|es|base|utf|ed"
    r"|rsa|argon|pbkdf|oauth|http|ipv|x|s|ec|k|p|bcrypt"
    r"|uuid|python|crc|pkcs|scram|sha-|aes-)[-_]?\d{1,4}[a-z]{0,2}(?:[-_/]\w{1,6}){0,2}|1password"
    r"|k8s|\d{4}-\d\d-\d\d\S*)"
)
_PLACE_OR_VARIABLE = late_pattern(
    r"(?i)(?:[$<{%~/\\\[(]|\.{1,2}/|\w+://|\*+$|x{3,}$|\.{3}|…)|.*(?:\(\)?|\.(?:env|ya?ml|json"
    r"|toml|ini|txt|md|py|js|ts|key|pem|conf|cfg|kdbx|sh|go|rs|com|org|net|io))$"
    r"|[a-z]+(?:[_.][a-z]+)+$|[A-Z]+(?:_[A-Z]+)+$|[\w.+-]+@[\w-]+\.\w+$"
)
_LETTERS_ONLY = late_pattern(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_CLAUSE_END = late_pattern(r"\s*(?:$|[.,;!?)\]|]|\s(?:and|und|et|y|e|but|aber)\b|[-—–(])")
_MORE_DIGITS = late_pattern(r"(?:[ \u00a0-]\d{2,4})+(?!\S)|(?:[ \u00a0-]\d{2,4})+(?=[.,;!?)])")
"""The rest of a number in groups: `493 201`."""
_GROUPED_DIGITS = late_pattern(r"\d{2,4}(?:-\d{2,4})+")
_MIN_VALUE = 4
"""Minimum characters of a secret that is not a word of letters."""
_MIN_WEAK_VALUE = 6
"""The same in a weak match, as `_candidates` says."""
_MIN_DIGITS = {"pin": 4, "password": 4}
"""Minimum digits of a number that is a secret of this kind."""
_MIN_DIGITS_OF_TOKEN = 8
"""The same for a token, and for a kind that is not known."""
_MAX_ABBREVIATION = 6
"""Letters of a word in capitals up to which it is an abbreviation, such as `LDAP`."""
_RANDOM_WORD = late_pattern(r"(?<![\w/=.+#-])[A-Za-z0-9]{20,}(?![\w/=.+-])")
"""A word that may be made at random: no part of a path, an address or an assignment."""
_CHANGE_OF_CLASS = late_pattern(r"[a-z](?=[^a-z])|[A-Z](?=[^A-Z])|[0-9](?=[^0-9])")
_MIN_CHANGES = 0.5
"""The share of letters after which the class changes: in random words 0.6, in names such as
`iOS15AndMacOS12BuildTarget` at most 0.5.
"""
_MIN_OF_CLASS = 2
"""Minimum of the small letters, of the capitals and of the digits in a random word."""
_LENGTHS_OF_SEEDS = (12, 15, 18, 21, 24)
"""The words of a phrase that restores a wallet (BIP 39)."""
_KINDS = ("password", "pin", "token")


def spoken_secret(text: str) -> str:
    """Returns the kind of the first secret that a sentence of `text` tells, such as "password in a
    sentence", or of a word in it that looks like a key; empty if there is none.
    """
    for match, is_weak in _candidates(text):
        kind = next((kind for kind in _KINDS if match.groupdict().get(kind)), "")
        if _is_value(kind, match["value"], match["rest"] or "", is_weak=is_weak):
            return f"{kind} in a sentence"
    return "random word in a sentence" if any(map(_is_random, _RANDOM_WORD.findall(text))) else ""


def _is_random(word: str) -> bool:
    """Whether a word looks like a key that a machine made: small and capital letters and digits
    change all the time. No word around it is needed, so it is found in any language.
    """
    counts = [
        sum(map(is_of_class, word)) for is_of_class in (str.islower, str.isupper, str.isdigit)
    ]
    changes = len(_CHANGE_OF_CLASS.findall(word))
    return min(counts) >= _MIN_OF_CLASS and changes >= _MIN_CHANGES * len(word)


def _candidates(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yields each match that may tell a secret, and whether it is weak: then more must speak for a
    secret. A match is weak in two cases: no verb such as "is" joins the name to the value
    (`password hunter2`, `hunter2 as password`), or the name is a plural (`passwords are …`).
    """
    for pattern in (_NAME_IS_VALUE, _VALUE_IS_NAME, _EAST_ASIAN, _NAME_VALUE):
        start = 0
        while match := pattern.search(text, start):
            groups = match.groupdict()
            is_weak = pattern is _NAME_VALUE or bool(groups.get("as") or groups.get("plural"))
            yield match, is_weak
            # The value may itself be the name of another secret: `the password token is hunter2`.
            # So the search goes on at the value, or behind it if it began there already.
            value_start, value_end = match.span("value")
            start = value_start if value_start > start else value_end


def _is_value(kind: str, value: str, rest: str, *, is_weak: bool) -> bool:
    """Whether the value in a sentence about a secret may be the secret itself, and not a word that
    describes it, as in `the password is required`.

    Args:
        kind: one of `_KINDS`; empty if the sentence does not name the kind.
        value: the value with its quotes and marks.
        rest: the text after it, up to the end of the line.
        is_weak: as in `_candidates`. Then a word of letters is not enough, and any other value
            must be longer.
    """
    is_quoted = value[0] in _QUOTES
    bare = value[1:-1].strip() if is_quoted else value.rstrip(".,;:!?)]\"'`*_»”")
    if len(bare) < 3 or _PLACE_OR_VARIABLE.match(bare):
        return False
    if bare.isdigit() or (kind == "pin" and _GROUPED_DIGITS.fullmatch(bare)):
        ends_with_mark = bare != value  # then it is the last word of its clause
        rest_of_clause = "" if ends_with_mark else rest
        return _is_number(kind, number=bare, rest=rest_of_clause, is_quoted=is_quoted)
    if kind == "pin" or _TECHNICAL_TERM.fullmatch(bare):  # a PIN has only digits
        return False
    if is_quoted and " " in bare:
        return _is_phrase(bare.split())
    if not _has_only_letters(bare):
        return len(bare) >= (_MIN_WEAK_VALUE if is_weak else _MIN_VALUE)
    if is_weak:
        return False
    if is_quoted:
        return not _describes_secret(bare)
    return _is_plain_value(kind, bare, value, rest)


def _is_number(kind: str, number: str, rest: str, is_quoted: bool) -> bool:
    """Whether a number is the secret itself. It is not if it counts something, as in `the password
    is 12 characters`, or if it is too short for a secret of this kind.

    A number in quotes counts nothing, and neither does one that ends its clause. `rest` is the text
    after the number, which may begin with more groups of its digits.
    """
    min_digits = _MIN_DIGITS.get(kind, _MIN_DIGITS_OF_TOKEN)
    if more := _MORE_DIGITS.match(rest):
        number, rest = number + more[0], rest[more.end() :]
    counts_something = not is_quoted and not _CLAUSE_END.match(rest)
    return len(number) >= min_digits and not counts_something


def _has_only_letters(word: str) -> bool:
    """Whether a word has letters, hyphens and apostrophes only, as words of a sentence do."""
    return _LETTERS_ONLY.fullmatch(word) is not None


def _describes_secret(word: str) -> bool:
    """Whether a word describes a secret, such as `required` and `encrypted`, or names one. It does
    if it has an ending such as `-ed`, or is in a list. A word with hyphens describes one if any of
    its parts is in the list.
    """
    if _SECRET_WORD.fullmatch(word) or _DESCRIBING_ENDING.search(word):
        return True
    return any(part in _DESCRIBING_WORDS for part in word.lower().split("-"))


def _is_plain_value(kind: str, bare: str, value: str, rest: str) -> bool:
    """Whether a word of letters without quotes is the secret itself.

    The word is the secret if it ends its clause and does not describe a secret. A password may also
    be a phrase of several words. For other kinds an ordinary word is never the secret. A short word
    in capitals is not a secret either.

    Args:
        bare: the word without marks at its end.
        value: the word as it was written.
        rest: the text after it.
    """
    # Such as `word` or `Word`; not `woRd` or `wo-rd`.
    is_ordinary_word = "-" not in bare and bare[1:].lower() == bare[1:]
    if kind != "password" and is_ordinary_word:
        return False
    if bare.isupper() and len(bare) <= _MAX_ABBREVIATION:
        return False
    ends_with_mark = bare != value
    is_last = ends_with_mark or bool(_CLAUSE_END.match(rest))
    if is_last:
        return not _describes_secret(bare)
    sentence = re.split(r"[.,;!?]", f"{bare}{rest}")[0].split()
    describes_it = bool(_DESCRIBING_ENDING.search(bare))
    return kind == "password" and not describes_it and _is_phrase(sentence)


def _is_phrase(words: list[str]) -> bool:
    """Whether these words are a pass phrase: 4 to 10 words of letters, or as many as a wallet has,
    none of them a small word such as `the`. A part of a sentence with so many words has a small
    word.
    """
    has_length_of_phrase = 4 <= len(words) <= 10 or len(words) in _LENGTHS_OF_SEEDS
    has_small = any(word.lower() in _SMALL_WORDS for word in words)
    return has_length_of_phrase and not has_small and all(map(_has_only_letters, words))
