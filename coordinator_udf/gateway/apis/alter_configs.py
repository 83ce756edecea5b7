"""AlterConfigs and IncrementalAlterConfigs: groups may have settings of their own (KIP-848).

Topics and the broker have none here.

Source of the errors and their order: ConfigAdminManager.preprocess, ConfigurationControlManager, GroupConfig.validate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordinator_udf.gateway.apis.configs import BROKER, GROUP, TOPIC, Configurable, missing
from coordinator_udf.gateway.settings import GroupSetting
from coordinator_udf.log.file import GroupConfigs
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.wire.shaping import answer

#: What gives a resource all its settings anew: those that it doesn't name are the default's again.
_REPLACING: Final = "AlterConfigs"

#: The APIs that change settings.
ALTERATIONS: Final = frozenset((_REPLACING, "IncrementalAlterConfigs"))

#: Kafka's AlterConfigOp.OpType.
_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3
_ON_LISTS: Final = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}

#: What groups of kinds may have that this coordinator doesn't serve.
_OTHER_KINDS: Final = ("share.", "streams.")

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"


def alter_configs(
    api: str, version: int, request: Mapping[str, Any], there: Configurable, known: GroupConfigs
) -> tuple[dict[str, Any], GroupConfigs]:
    """Returns the answer to one of `ALTERATIONS`, and all settings of those groups for which something changes.

    Of a resource all changes are made or none; those of others are made nonetheless.
    """
    asked = Counter((entry["resourceType"], entry["resourceName"]) for entry in request["resources"])
    changed: dict[str, Mapping[str, str]] = {}
    responses = []
    for entry in request["resources"]:
        kind, name = entry["resourceType"], entry["resourceName"]
        error, message = Errors.NONE, None
        try:
            if asked[kind, name] > 1:
                raise ApiError(Errors.INVALID_REQUEST, "Each resource must appear at most once.")
            before = known.get(name, {})
            after = _altered(entry, there, {} if api == _REPLACING else before)
            if after != before:
                changed[name] = after
        except ApiError as refused:
            error, message = refused.error, refused.message
        told = {"errorCode": int(error), "errorMessage": message, "resourceType": kind, "resourceName": name}
        responses.append(told)
    body = answer(api, version, responses=responses)
    return body, {} if request["validateOnly"] else changed


def _altered(entry: Mapping[str, Any], there: Configurable, before: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the settings of a group after a change of those that it had.

    Raises:
        ApiError: it can't be made.
    """
    kind, name, changes = entry["resourceType"], entry["resourceName"], entry["configs"]
    if len({change["name"] for change in changes}) < len(changes):
        raise ApiError(Errors.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [change["name"] for change in changes if change["value"] is None and _operation(change) != _DELETE]
    if empty:
        raise ApiError(Errors.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")
    _refuse_others(kind, name, there, [change["name"] for change in changes])
    after = dict(before)
    for change in changes:
        operation, config = _operation(change), change["name"]
        if operation == _DELETE:
            after.pop(config, None)
        elif operation == _SET:
            after[config] = change["value"].strip()
        elif operation in _ON_LISTS:
            why = f"Can't {_ON_LISTS[operation]} to key {config} because its type is not LIST."
            raise ApiError(Errors.INVALID_CONFIG, why)
        else:
            expected = f"{_SET} (set), {_DELETE} (delete), {_APPEND} (append) or {_SUBTRACT} (subtract)"
            raise ApiError(Errors.INVALID_REQUEST, f"configOperation is {operation}, expected {expected}")
    _validate(after, there.of_groups)
    return after


def _operation(change: Mapping[str, Any]) -> int:
    """Returns what is to be done with a setting; an AlterConfigs sets all that it names."""
    operation: int = change.get("configOperation", _SET)
    return operation


def _refuse_others(kind: int, name: str, there: Configurable, configs: Sequence[str]) -> None:
    if kind == GROUP and not name:
        raise ApiError(Errors.INVALID_REQUEST, "Default group resources are not allowed.")
    error, message = missing(kind, name, there)
    if error is not Errors.NONE:
        raise ApiError(error, message)
    given = ", ".join(configs)
    if kind == TOPIC:
        why = f"no records are stored here, so a topic has no settings; given: {given}"
        raise ApiError(Errors.INVALID_CONFIG, why)
    if kind == BROKER:
        why = f"the broker's settings are those of the coordinator's settings file: change them there; given: {given}"
        raise ApiError(Errors.POLICY_VIOLATION, why)
    assert kind == GROUP


def _validate(own: Mapping[str, str], of_groups: Sequence[GroupSetting]) -> None:
    """Checks all that a group would have for itself (GroupConfig.validate).

    Raises:
        ApiError: a name isn't known, or a value is out of the coordinator's bounds.
    """
    known = {config.name: config for config in of_groups}
    values = {config.name: config.value for config in of_groups}
    for name, text in own.items():
        if name not in known:
            other = name.startswith(_OTHER_KINDS)
            why = (
                f"{name} is of a kind of groups that isn't served here"
                if other
                else f"Unknown group config name: {name}"
            )
            raise ApiError(Errors.INVALID_CONFIG, why)
        values[name] = _number(name, text)
    for name in own:
        bounds = known[name]
        if values[name] < bounds.least:
            why = f"{name} must be greater than or equal to {bounds.bound_name('min')}"
            raise ApiError(Errors.INVALID_CONFIG, why)
        if values[name] > bounds.most:
            raise ApiError(Errors.INVALID_CONFIG, f"{name} must be less than or equal to {bounds.bound_name('max')}")
    if {_SESSION, _HEARTBEAT} <= values.keys() and values[_SESSION] <= values[_HEARTBEAT]:
        raise ApiError(Errors.INVALID_CONFIG, f"{_SESSION} must be greater than {_HEARTBEAT}")


def _number(name: str, text: str) -> int:
    """Returns a setting's value as Kafka's ConfigDef reads one of type INT."""
    try:
        value = int(text)
        if not -(2**31) <= value < 2**31 or "_" in text or not text.isascii():
            raise ValueError(text)
    except ValueError:
        why = f"Invalid value {text} for configuration {name}: Not a number of type INT"
        raise ApiError(Errors.INVALID_CONFIG, why) from None
    return value
