"""may_match: whether the scanner for secrets could find anything, without its rules; they take 0.3 s to load."""

from __future__ import annotations

import re
from base64 import b64decode
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ouro.utils.late_pattern import late_pattern

RULES_VERSION = "1.5.0"
"""The version of kingfisher-secret-scanner that the shapes below are of; a test finds what they lack of its rules."""
MAX_LENGTH = 20_000
"""Longer texts are left to the scanner."""

_WORDS = (  # noqa: SIM905 (as a list they take 200 lines)
    "-----begin -prd- application_key_ .jfrog.io .salesforce.com .snowflakecomputing.com .supabase.co .upstash.io 4b1d "
    "_gitlab_session= _mmk _production_ aact_ absk accountname aik_ci_ aik_client_ airtable aiven aiza akcp algolia "
    "amplitude api_live api_org_ apify_api_ apk_ aq.ab8rn6 astracs: atat auth0 auth_provider_x509_cert_url bbdc- "
    "bitly bkua_ browserstack canva capella ccdb1_ ccipat_ cciprj_ cf_account_id cf_api_key cf_api_token cf_token "
    "cfat_ cfut_ clickhouse clojars_ cloudflare cloudinary cmvmd cnvca cog_ configcat-sdk-1/ contribsys couchbase "
    "csa_ curl dapi dckr_oat_ dckr_pat_ ddo_ ddp_ doo_v1_ dop_v1_ dor_v1_ dp.pt. dt0c01. duffel_ dvc_ eaaa eaac eaam "
    "endpoint=sb:// essu_ eyjrijoi eyjtaxjv ezak eztk figd_ fio-u- flwpubk_test- flwseck_test- flyv1 gcntfy- gho_ ghp_ "
    "ghr_ ghs_ ghu_ github_pat_ glagent- glc_ glcbt- gldt- glffct- glft- glimt- gloas- glpat- glptt- glrt- glsa_ "
    "glsoat- gocardless gr1348941 hf_ hooks hrku- hvb. hvs. ico- incoming+ influx lin_api_ linked-in linked_in "
    "linkedin llx- lsv2_ ltai mdb_sa_id_ mlsn. napi_ npm_ ntn_ nvapi- nyk_ ops_eyj os_v2_app_ os_v2_org_ p8e- "
    "packagist passphrase password pdl_live_ phc_ phx_ pina_ pk-lf- planetscale pmak- pmat- pnu_ polar_ pplx- pscale "
    'pul- pypi-ageichlwas5vcmc ramp_id_ ramp_sec_ rdme_ refresh_token" rk_live rk_prod rk_test rnd_ rootly_ rpa_ '
    "rubygems_ rzp_ s-s4t2af- s-s4t2ud- samsara_api_ sbp_ secret sgp_ sha256~ shippo_ shpat_ shpca_ shppa_ shpss_ "
    "sk-or- sk_car_ sk_live sk_prod sk_test sm_aat_ sm_pat_ sm_sat_ sntrys_eyjpyxqio sntryu_ sq0atp- storage sumo "
    "swmkey-1- swmtkn-1- t3blbkfj tableau tenant tgp_v1_ tk-us- tskey- tss_ ucat_ unkey_ v1.0- vca_ vci_ vck_ vcp_ "
    "vcr_ vtwn_ waka_ wandb_v1_ webhook wrka xai- xapp- xkeysib- xoxa- xoxb- xoxc- xoxd- xoxe xoxo- xoxp xoxr- xoxs- "
    "y2nvdw50x2lk zpka_ zxlk "
).split()
"""Each rule needs one of these, an assignment, or one of the shapes."""
_SHAPES = late_pattern(
    # The marks of recalled notes are ouro's own.
    r"[=>|:,](?!//[\w-]{1,30}\.|\"(?:mem_[0-9a-f]{8}|command):[0-9a-f]{8}[\" ])[`'\"\s=]{0,5}[^\s`'\"]{14}"
    r"|aws[_-]?(?:session|security)[_-]?token|://\S*@|\.blob\.core\.|client[_\s.-]*id[\s\S]{0,24}?[0-9a-f]{8}-[0-9a-f]{4}-"
    r"|[a-z0-9+/]{22}==|\dq~|\d{15}[|%]|00[a-z0-9]{13}!"
    r"|sk-?[0-9a-z_-]{32}|\bs\.[a-z0-9]{24}|[0-9a-f]{32}\.|\bre_[0-9a-z]{8}_|\bpat[0-9a-z]{14}\.|\b(?:a3t|akia|asia|abia|acca)"
    r"|\ba3-[a-z0-9]{6}-|\bbk[a-z]{2,3}_|\bexo[a-z0-9]{24}|\bbsa[\w-]{24}|\br8_[a-z0-9]{37}|\bapi-[a-z0-9]{26}"
    r"|\bcli_[a-z0-9]{16}|(?:pa|al)-[\w-]{43}|\b(?:ion|lip|prf)_[\w-]{16}|\.ey|sg\.|\bsts\.[a-z0-9]{16}|\.acc[_-]|[ps]at\.[\w-]{22}\.|\bey[a-z0-9]{17}"
)
_BASE64 = late_pattern(r"[\w+/-]{24,}", re.ASCII)


def may_match(text: str) -> bool:
    """Whether a rule of the scanner could match `text`, or what is encoded in it as base64; True if in doubt."""
    if len(text) > MAX_LENGTH or not _is_known():
        return True
    lowered = text.lower()
    if any(word in lowered for word in _WORDS) or _SHAPES.search(lowered):
        return True
    return any(may_match(_decoded(match[0])) for match in _BASE64.finditer(text))


def _decoded(encoded: str) -> str:
    data = encoded.rstrip("=").translate(str.maketrans("-_", "+/"))
    return b64decode(data[: len(data) - (len(data) % 4 == 1)] + "==").decode("latin-1")


@cache
def _is_known() -> bool:
    """Whether the installed scanner has the rules that are known here."""
    found = find_spec("kingfisher_sdk")
    if found is None or found.origin is None:
        return True  # nothing scans
    folder = Path(found.origin).parents[1]
    return (folder / f"kingfisher_secret_scanner-{RULES_VERSION}.dist-info").exists()
