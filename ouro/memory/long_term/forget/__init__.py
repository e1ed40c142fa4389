"""True forget: remove a text from everything that ouro stores."""

from ouro.memory.long_term.forget.everywhere import MANY_PLACES, PROVIDERS, OuroHome, TrueForget, back_up_home
from ouro.memory.long_term.forget.text import ForgetReport, ForgottenText

__all__ = ["MANY_PLACES", "PROVIDERS", "ForgetReport", "ForgottenText", "OuroHome", "TrueForget", "back_up_home"]
