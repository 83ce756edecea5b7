"""Who may do what: ACLs as Kafka's StandardAuthorizer reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coordinator_udf.gateway.security.settings import Acl

#: The name of the one resource of the type CLUSTER.
CLUSTER: Final = "kafka-cluster"

_ANYBODY: Final = "User:*"
_ANYTHING: Final = "*"

#: What being allowed to do one thing allows besides (AclEntry in org.apache.kafka.metadata.authorizer).
_IMPLIED_BY: Final = {
    "DESCRIBE": frozenset({"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}),
    "DESCRIBE_CONFIGS": frozenset({"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
}


class Acls:
    """A set of ACLs: a DENY that matches overrides every ALLOW, and what no rule matches is denied.

    Args:
        rules: in any order.
        super_users: principals who may do everything.
        allow_without_acl: whether all may do what they like with a resource that no rule is about.
    """

    def __init__(
        self, rules: Iterable[Acl], super_users: Iterable[str] = (), *, allow_without_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._literal: dict[tuple[str, str], list[Acl]] = {}
        self._prefixed: dict[str, list[Acl]] = {}
        for rule in rules:
            if rule.pattern == "PREFIXED":
                self._prefixed.setdefault(rule.resource, []).append(rule)
            else:
                self._literal.setdefault((rule.resource, rule.name), []).append(rule)

    def allows(self, principal: str, host: str, operation: str, resource: str, name: str) -> bool:
        """Returns whether a principal may do this.

        Args:
            principal: ``User:NAME``.
            host: the address it comes from.
            name: the name of the resource.
        """
        if principal in self._super_users:
            return True
        about = [
            *self._literal.get((resource, name), ()),
            *self._literal.get((resource, _ANYTHING), ()),
            *(rule for rule in self._prefixed.get(resource, ()) if name.startswith(rule.name)),
        ]
        if not about:
            return self._allow_without_acl
        mine = [rule for rule in about if _is_about(rule, principal, host)]
        if any(rule.permission == "DENY" and rule.operation in (operation, "ALL") for rule in mine):
            return False
        enough = _IMPLIED_BY.get(operation, frozenset({operation}))
        return any(
            rule.permission == "ALLOW" and (rule.operation == "ALL" or rule.operation in enough) for rule in mine
        )

    def allows_somewhere(self, principal: str, host: str, operation: str, resource: str) -> bool:
        """Returns whether the rules let a principal do this with at least one resource of a type."""
        rules = [
            *self._prefixed.get(resource, ()),
            *(rule for (kind, _), some in self._literal.items() if kind == resource for rule in some),
        ]
        names = {rule.name for rule in rules if rule.permission == "ALLOW" and _is_about(rule, principal, host)}
        if principal in self._super_users or (self._allow_without_acl and not rules):
            return True
        return any(self.allows(principal, host, operation, resource, name) for name in names)


def _is_about(rule: Acl, principal: str, host: str) -> bool:
    return rule.principal in (principal, _ANYBODY) and rule.host in (host, _ANYTHING)
