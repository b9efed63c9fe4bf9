"""Names by which `headwater restore` and the brokers of the restored cluster agree."""

from __future__ import annotations

RESTORE_CLIENT_ID = "headwater-restore"
"""It commits groups' offsets while GROUPS_PENDING keeps all other clients from coordinators."""
GROUPS_PENDING = "headwater.restore.groups.pending"
"""Broker config, cluster-wide, until the groups' offsets are committed."""
RESTORED = "/headwater/restored"
"""Nodes `<topic id>`: the first offset that the restored cluster may assign, per partition."""
