"""kafka-acls.sh on a cluster with the authorizer."""

from __future__ import annotations

from headwater.config.rows_security import STANDARD_AUTHORIZER
from integration.tool_bench import TOOLS, Bench

OPEN_WITH_AUTHORIZER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
"""Open to everyone where there are no ACLs: these clusters' listeners have no login."""


def change_acls(b: Bench) -> None:
    """Give a producer its rights by prefix, list them, take them away (KIP-290)."""

    def tool(*arguments: str) -> str:
        return b.tool(f"{TOOLS}.AclCommand", *arguments)

    prefix = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    assert "Adding ACLs" in tool("--add", "--allow-principal", "User:alice", "--producer", *prefix)
    listed = tool("--list", "--principal", "User:alice")
    assert "patternType=PREFIXED" in listed, listed
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"operation={operation}" in listed, listed
    denied = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.9", "--operation", "Read")
    tool("--add", *denied, "--group", "g")
    listed = tool("--list", "--group", "g")
    assert "principal=User:bob, host=10.0.0.9" in listed and "permissionType=DENY" in listed
    tool("--remove", "--force", *prefix)
    tool("--remove", "--force", "--group", "g")
    assert "User:" not in tool("--list")
