"""SaslHandshake and SaslAuthenticate where nobody is asked to authenticate, or somebody did already: refused.

Clients that are set up for SASL then say why they can't go on. Source: KafkaApis.
"""

from __future__ import annotations

from typing import Any, Final

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: API -> its first and its last version.
SASL_APIS: Final = {"SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2)}

_MESSAGES: Final = {
    "SaslHandshake": None,
    "SaslAuthenticate": "SaslAuthenticate request received after successful authentication",
}


def refuse_sasl(api: str, version: int) -> dict[str, Any]:
    """Returns the answer to one of `SASL_APIS`."""
    told = {"errorMessage": message} if (message := _MESSAGES[api]) else {}
    return answer(api, version, errorCode=int(Errors.ILLEGAL_SASL_STATE), **told)
