"""The ids that Kafka's coordinator made for the members of a recorded loop."""

from __future__ import annotations

from coordinator_udf.replay.members.failovers import recorded_answers, recorded_requests
from coordinator_udf.replay.members.recorded_coordinator import RequestKey
from coordinator_udf.replay.members.recording import RecordedMembers


def member_ids(recording: RecordedMembers, draw: int = 0) -> dict[RequestKey, str]:
    """Returns the ids that Kafka's coordinator made for joining members that had none, by the request.

    An answer that nobody saw doesn't tell it; then the id is one that begins with the client's id or its instance id
    and that a later answer names. Of others nothing is known but that they were drawn.

    Args:
        draw: which of many ids each of those others gets. A group's members are in the order of a hash map.
    """
    answers = recorded_answers(recording)
    found: dict[RequestKey, str] = {}
    unknown: list[tuple[RequestKey, str]] = []
    for key, sent in recorded_requests(recording).items():
        if sent["api"] == "JoinGroup" and not sent["body"]["memberId"]:
            member_id = answers.get(key, {}).get("memberId")
            if member_id:
                found[key] = member_id
            else:
                unknown.append((key, sent["body"].get("groupInstanceId") or key[0]))
    joined = [body for body in answers.values() if "leader" in body]
    named = dict.fromkeys(
        member_id for body in joined for member_id in (body["leader"], *(one["memberId"] for one in body["members"]))
    )
    free = [member_id for member_id in named if member_id not in set(found.values())]
    for key, prefix in unknown:
        drawn = f"{prefix}-{key[0]}-{key[1]}{f'-{draw}' if draw else ''}"
        found[key] = next((known for known in free if known.startswith(f"{prefix}-")), drawn)
        if found[key] in free:
            free.remove(found[key])
    return found
