"""may_match: whether the scanner of secrets could find something in a text, so that it must be
loaded.

Its rules were read once: a text that one of them matches contains one of the words or shapes here.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

from ouro.utils.late_pattern import late_pattern

RULES_VERSION = "1.5.0"
"""The version of kingfisher-secret-scanner for which the shapes below were made; a test finds
missing ones.
"""
MAX_LENGTH = 40_000
"""Longer texts are always given to the scanner. A tool result is shorter: to check 30,000 characters
takes 11 ms of CPU, to load the scanner more than 150.
"""

_SCANNER_WORDS = (
    "-----begin -prd- application_key_ .jfrog.io .salesforce.com .snowflakecomputing.com"
    " .supabase.co .upstash.io 4b1d _gitlab_session= _mmk _production_ aact_ absk accountname"
    " aik_ci_ aik_client_ airtable aiven aiza akcp algolia amplitude api_live api_org_ apify_api_"
    " apk_ aq.ab8rn6 astracs: atat auth0 auth_provider_x509_cert_url bbdc-"
    " bedrock-api-key- bitly bkua_ browserstack"
    " canva capella ccdb1_ ccipat_ cciprj_ cf_account_id cf_api_key cf_api_token cf_token cfat_"
    " cfut_ clickhouse clojars_ cloudflare cloudinary cmvmd cnvca cog_ configcat-sdk-1/ contribsys"
    " couchbase csa_ curl dapi dckr_oat_ dckr_pat_ ddo_ ddp_ doo_v1_ dop_v1_ dor_v1_ dp.pt. dt0c01."
    " duffel_ dvc_ eaaa eaac eaam endpoint=sb:// essu_ eyjrijoi eyjtaxjv ezak eztk figd_ fio-u-"
    " flwpubk_test- flwseck_test- flyv1 gcntfy- gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glagent- glc_"
    " glcbt- gldt- glffct- glft- glimt- gloas- glpat- glptt- glrt- glsa_ glsoat- gocardless"
    " gr1348941 hf_ hooks hrku- hvb. hvs. ico- incoming+ influx lin_api_ linked-in linked_in"
    " linkedin llx- lsv2_ ltai mdb_sa_id_ mlsn. napi_ npm_ ntn_ nvapi- nyk_ ops_eyj os_v2_app_"
    " os_v2_org_ p8e- packagist passphrase password pdl_live_ phc_ phx_ pina_ pk-lf- planetscale"
    " pmak- pmat- pnu_ polar_ pplx- pscale pul- pypi-ageichlwas5vcmc ramp_id_ ramp_sec_ rdme_"
    ' refresh_token" rk_live rk_prod rk_test rnd_ rootly_ rpa_ rubygems_ rzp_ s-s4t2af- s-s4t2ud-'
    " samsara_api_ sbp_ secret sgp_ sha256~ shippo_ shpat_ shpca_ shppa_ shpss_ sk-or- sk_car_"
    " sk_live sk_prod sk_test sm_aat_ sm_pat_ sm_sat_ sntrys_eyjpyxqio sntryu_ sq0atp- storage sumo"
    " swmkey-1- swmtkn-1- t3blbkfj tableau tenant tgp_v1_ tk-us- tskey- tss_ ucat_ unkey_ v1.0-"
    " vca_ vci_ vck_ vcp_ vcr_ vtwn_ waka_ wandb_v1_ webhook wrka xai- xapp- xkeysib- xoxa- xoxb-"
    " xoxc- xoxd- xoxe xoxo- xoxp xoxr- xoxs- y2nvdw50x2lk zpka_ zxlk "
).split()
"""A text that a rule matches contains one of these, an assignment, or one of the shapes."""
_SCANNER_SHAPES = late_pattern(
    r"[=>|:,](?!//[\w-]{1,30}\.)[`'\"\s=]{0,5}[^\s`'\"]{14}"
    r"|aws[_-]?(?:session|security)[_-]?token|://\S*@|\.blob\.core\.|client[_\s.-]*id[\s\S]{0,24}?[0-9a-f]{8}-[0-9a-f]{4}-"
    r"|[a-z0-9+/]{22}==|\dq~|\d{15}[|%]|00[a-z0-9]{13}!"
    r"|sk-?[0-9a-z_-]{32}|\bs\.[a-z0-9]{24}|[0-9a-f]{32}\.|\bre_[0-9a-z]{8}_|\bpat[0-9a-z]{14}\.|\b(?:a3t|akia|asia|abia|acca)"
    r"|\ba3-[a-z0-9]{6}-|\bbk[a-z]{2,3}_|\bexo[a-z0-9]{24}|\bbsa[\w-]{24}|\br8_[a-z0-9]{37}|\bapi-[a-z0-9]{26}"
    r"|\bcli_[a-z0-9]{16}|(?:pa|al)-[\w-]{43}|\b(?:ion|lip|prf)_[\w-]{16}|\.ey|sg\.|\bsts\.[a-z0-9]{16}|\.acc[_-]|[ps]at\.[\w-]{22}\.|\bey[a-z0-9]{17}"
)
_OWN_MARKS = late_pattern(
    r"(?<![\w-])(?:memory-[0-9a-f]{16}|mem_[0-9a-f]{8}(?::[0-9a-f]{8})?|command:[0-9a-f]{8})(?![\w-])"
)
"""What ouro itself writes around recalled notes: `<memory-f6d2abd85f79dce6
recalled="mem_3f6c1e07:b59c917e">`. Only whole words: a secret that contains such a mark is still
found.
"""
_BASE64_TEXT = late_pattern(r"[\w+/-]{24,}", re.ASCII)


def may_match(text: str) -> bool:
    """Whether a rule of the scanner could match `text`, or a text that is encoded in it as base64.

    True if that is not known: for a long text, and for another version of the scanner than the
    shapes were made for.
    """
    if len(text) > MAX_LENGTH or not _knows_installed_scanner():
        return True
    text = without_own_marks(text)
    lowered = text.lower()
    if any(word in lowered for word in _SCANNER_WORDS) or _SCANNER_SHAPES.search(lowered):
        return True
    for match in _BASE64_TEXT.finditer(text):
        data = match[0].translate(str.maketrans("-_", "+/"))
        if len(data) % 4 == 1:  # base64 never has such a length
            data = data[:-1]
        decoded = base64.b64decode(data + "==")
        # The scanner ignores what is not ASCII. A path is decoded to such data: its bytes held a
        # word of a rule by chance, and the scanner was loaded for nothing (100 ms).
        if decoded.isascii() and may_match(decoded.decode("ascii")):
            return True
    return False


def without_own_marks(text: str) -> str:
    """Returns `text` without the marks that ouro puts on recalled notes and on commands. They look
    like tokens: with them, each message with a note would load the scanner (100 to 250 ms).
    """
    may_have_marks = "mem" in text or "command:" in text
    return _OWN_MARKS.sub("", text) if may_have_marks else text


@cache
def _knows_installed_scanner() -> bool:
    """Whether the installed scanner has the version for which the shapes were made; True if none is
    installed.
    """
    # Imported late: the rules are compiled once.
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("kingfisher_sdk")
    if spec is None or spec.origin is None:
        return True
    folder = Path(spec.origin).parents[1]
    return (folder / f"kingfisher_secret_scanner-{RULES_VERSION}.dist-info").exists()
