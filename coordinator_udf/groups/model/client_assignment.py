"""What a consumer group has in KIP-848's client-side mode, in which a member computes the target assignment.

Data, each of it in a record of the offsets topic (tagged fields that Kafka's own values haven't got), so that a group
that is loaded goes on where it stopped. Source: KIP-848 (client-side mode, which Kafka has left out).
"""

from __future__ import annotations

import msgspec


class ClientAssignor(msgspec.Struct, frozen=True, array_like=True):
    """An assignor that a member can run, with the versions of metadata that it reads, both ends included.

    ``reason`` other than 0 asks for a new assignment. A version of -1 is the user data of the classic protocol.
    """

    name: str
    minimum_version: int
    maximum_version: int
    reason: int = 0
    metadata_version: int = -1
    metadata: bytes = b""


class Departure(msgspec.Struct, frozen=True, array_like=True):
    """A member that went while an assignment was computed.

    Attributes:
        group_epoch: the first one without it.
        replaced_by: the id under which its instance id came back; "" if it didn't.
    """

    member_id: str
    group_epoch: int
    replaced_by: str = ""


class Computation(msgspec.Struct, frozen=True, array_like=True):
    """Who is to compute an assignment.

    Attributes:
        assignor: which one it is to run, and the newest version of metadata that all members' read.
        member_id: who; "" if nobody is there who can.
        group_epoch: the group's epoch when the member was chosen.
        told_ms: when it was told; 0 if it hasn't been yet.
        late: who didn't install one in time, since the last that was installed.
        failed: who failed to compute one for this epoch.
        error: what the last of those failed with; 0 if nobody did.
        refusals: how many assignments were refused, since the last that was installed.
        departures: who went since it began.
    """

    assignor: str
    version: int
    member_id: str
    group_epoch: int
    told_ms: int = 0
    late: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    error: int = 0
    refusals: int = 0
    departures: tuple[Departure, ...] = ()


class InstalledAssignment(msgspec.Struct, frozen=True, array_like=True):
    """How a target assignment came to be that a member computed.

    Attributes:
        assignor: which one computed it.
        member_id: who ran it.
        took_ms: how long after it was told.
        error: the assignor's error, or `NO_VALID_ASSIGNMENT`; the partitions are those of before then.
        refusals: how many assignments were refused before it.
    """

    assignor: str
    member_id: str
    took_ms: int
    error: int = 0
    refusals: int = 0


#: The error of an assignment that was refused for what stands in it. The assignors' own are theirs.
NO_VALID_ASSIGNMENT = -1
