"""The properties of a mirror: `headwater mirror run --config FILE`.

One file names both clusters. Names are MirrorMaker 2's where they mean the same; `source.` and
`target.` before a client's option give it to that side.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.client.addresses import parse_bootstrap
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.config.java_properties import read_java_properties
from headwater.config.row import ConfigKey, Kind, Scope
from headwater.errors import UsageError
from headwater.mirror.core.selection import Selection
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.security.client_keys import is_security_key
from headwater.security.client_security import credentials_of

TOPIC_CONFIGS = (
    "cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
    "max.compaction.lag.ms", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms",
)  # fmt: skip
"""The topic configs that are mirrored by default: what says how long and in which form records are
kept. Those of replicas, tables and throttles belong to their cluster; with LogAppendTime the target
would replace the records' timestamps."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,100}")


def _key(
    name: str,
    kind: Kind,
    default: int | bool | str | tuple[str, ...] | None,
    doc: str,
    minimum: int | None = None,
    unit: str = "",
) -> ConfigKey:
    return ConfigKey(name, kind, default, Scope.BOTH, unit, doc, minimum=minimum)


KEYS = (
    _key("mirror.id", Kind.STRING, "1",
         "Names the mirror: its topic on the target is __mirror.ID.positions."),
    _key("topics", Kind.STRING, None, "Topics to mirror: names or regular expressions, by commas."),
    _key("topics.deny", Kind.STRING, None, "Topics not to mirror, instead of `topics`."),
    _key("groups", Kind.STRING, None, "Groups whose offsets are translated."),
    _key("groups.deny", Kind.STRING, None, "Groups whose offsets are not, instead of `groups`."),
    _key("group.instance.id", Kind.STRING, None,
         "Names this process among those of the mirror: it takes its buckets over again at once "
         "after a crash (KIP-345). Each process needs its own."),
    _key("mirror.buckets", Kind.INT, 4,
         "Transactions at the same time, over all processes. Fixed with the first run.", 1),
    _key("commit.interval.ms", Kind.INT, 200, "Time limit of a transaction.", 1, "ms"),
    _key("commit.bytes", Kind.INT, 8 << 20, "Size limit of a transaction.", 1, "bytes"),
    _key("replication.factor", Kind.INT, -1, "Of topics created on the target; -1: its default."),
    _key("refresh.topics.interval.seconds", Kind.INT, 10,
         "How often topics and partitions are looked for.", 1, "s"),
    _key("sync.topic.configs.enabled", Kind.BOOLEAN, True, "Mirror the configs of topics."),
    _key("sync.topic.configs.interval.seconds", Kind.INT, 60, "How often.", 1, "s"),
    _key("topic.configs", Kind.LIST, TOPIC_CONFIGS, "The configs that are mirrored."),
    _key("sync.topic.acls.enabled", Kind.BOOLEAN, True,
         "Mirror the ACLs of topics; those to write only at promotion."),
    _key("sync.group.offsets.enabled", Kind.BOOLEAN, True, "Translate the offsets of groups."),
    _key("sync.group.offsets.interval.seconds", Kind.INT, 10, "How often.", 1, "s"),
    _key("emit.heartbeats.interval.seconds", Kind.INT, 1,
         "How often the target learns that the mirror lives, and where the source ends.", 1, "s"),
    _key("target.existing", Kind.STRING, "stop",
         "`append` mirrors into topics that hold other records already; `stop` does not."),
    _key("metrics.listen", Kind.STRING, None, "Serve Prometheus metrics at this HOST:PORT."),
    _key("metrics.config", Kind.STRING, None,
         "Who may read them off loopback: a FILE with bearer.token.file, or with ssl.* and "
         "ssl.client.auth=required; allowed.hosts."),
    _key("source.auto.offset.reset", Kind.STRING, "earliest",
         "Where a topic begins that was never mirrored: earliest or latest. Topics and partitions "
         "that are added while it is mirrored begin at their start."),
    _key("target.transaction.timeout.ms", Kind.INT, 60_000,
         "After so long the target aborts a transaction whose mirror is gone.", 1000, "ms"),
    _key("source.fetch.min.bytes", Kind.INT, 1, "See the consumer's option.", 0, "bytes"),
    _key("source.fetch.max.wait.ms", Kind.INT, 500, "See the consumer's option.", 0, "ms"),
    _key("source.fetch.max.bytes", Kind.INT, 16 << 20, "See the consumer's option.", 1, "bytes"),
    _key("source.max.partition.fetch.bytes", Kind.INT, 2 << 20,
         "See the consumer's option.", 1, "bytes"),
)  # fmt: skip
"""Every property but those of the connections."""
CONNECTION_KEYS = (
    _key("bootstrap.servers", Kind.STRING, None, "host:port,..."),
    _key("client.id", Kind.STRING, "headwater-mirror", "Name in the brokers' logs and quotas."),
    _key("request.timeout.ms", Kind.INT, 30_000, "Time limit of a request.", 1, "ms"),
    _key("retry.backoff.ms", Kind.INT, 50, "Pause before the first retry.", 0, "ms"),
    _key("retry.backoff.max.ms", Kind.INT, 1000, "Longest pause.", 0, "ms"),
    _key("metadata.max.age.ms", Kind.INT, 300_000, "Longest age of metadata.", 1, "ms"),
    _key("socket.connection.setup.timeout.ms", Kind.INT, 10_000, "Of a connection.", 1, "ms"),
    _key("receive.buffer.bytes", Kind.INT, -1, "Of a socket; -1: the system's.", -1, "bytes"),
    _key("send.buffer.bytes", Kind.INT, -1, "Of a socket; -1: the system's.", -1, "bytes"),
)  # fmt: skip
"""After `source.` and `target.`, beside those of security."""
ALIASES = {
    "topics.exclude": "topics.deny", "topics.blacklist": "topics.deny", "blacklist": "topics.deny",
    "whitelist": "topics", "groups.exclude": "groups.deny", "tasks.max": "mirror.buckets",
    "num.producers": "mirror.buckets",
    "socket.receive.buffer.bytes": "source.receive.buffer.bytes",
    "consumer.auto.offset.reset": "source.auto.offset.reset",
}  # fmt: skip
"""Names of MirrorMaker 1 and 2 for the same thing."""
ENQUEUE_TIMEOUTS = ("queue.enqueue.timeout.ms", "queue.enqueueTimeout.ms")
"""MirrorMaker 1's advice is -1, wait for room and drop nothing: here nothing else happens."""


@dataclass(frozen=True, slots=True)
class Side:
    """How to reach one of the two clusters."""

    name: str
    bootstrap: list[tuple[str, int]]
    servers: str
    options: ClusterOptions

    def cluster(self) -> Cluster:
        """A client's view of it; nothing is connected yet."""
        return Cluster(self.bootstrap, self.options)


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """A mirror's properties, checked."""

    source: Side
    target: Side
    topics: Selection
    groups: Selection
    mirror_id: str = "1"
    instance_id: str | None = None
    buckets: int = 4
    commit_s: float = 0.2
    commit_bytes: int = 8 << 20
    replication_factor: int = -1
    refresh_s: float = 10.0
    syncs_configs: bool = True
    configs_s: float = 60.0
    topic_configs: tuple[str, ...] = TOPIC_CONFIGS
    syncs_acls: bool = True
    syncs_groups: bool = True
    groups_s: float = 10.0
    heartbeat_s: float = 1.0
    appends: bool = False
    metrics_listen: str | None = None
    metrics_config: str | None = None
    starts_latest: bool = False
    transaction_timeout_ms: int = 60_000
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 500
    fetch_bytes: int = 16 << 20
    fetch_partition_bytes: int = 2 << 20
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties as given, secrets included."""

    @property
    def group_id(self) -> str:
        """The group that shares the buckets among processes."""
        return f"__mirror.{self.mirror_id}"

    @property
    def buffer_bytes(self) -> int:
        """A partition is fetched again while it has fewer bytes buffered."""
        return 2 * self.fetch_partition_bytes

    @property
    def buffer_bytes_max(self) -> int:
        """A bucket fetches nothing while it has so many bytes buffered."""
        return 2 * max(self.commit_bytes, self.fetch_bytes)


def load_config(path: str) -> MirrorConfig:
    """The config in a properties file. Raises UsageError that names key, value and remedy."""
    return parse_config(read_java_properties(path, "--config"))


def parse_config(properties: Mapping[str, str]) -> MirrorConfig:
    """The config of these properties. Raises UsageError."""
    given = _with_known_names(properties)
    source, target = (_side(name, given) for name in ("source", "target"))
    values = {key.name: _parsed(key, given) for key in KEYS}
    if {*source.bootstrap} & {*target.bootstrap}:
        raise UsageError(
            f"source and target are one cluster ({source.servers}): a mirror needs two"
        )
    if not _ID.fullmatch(str(values["mirror.id"])):
        raise UsageError(f"mirror.id is {values['mirror.id']!r}: use letters, digits, - and _")
    reset = _choice(values, "source.auto.offset.reset", ("earliest", "latest"))
    existing = _choice(values, "target.existing", ("stop", "append"))
    return MirrorConfig(
        source=source,
        target=target,
        topics=Selection("topics", given.get("topics"), given.get("topics.deny")),
        groups=Selection("groups", given.get("groups"), given.get("groups.deny")),
        mirror_id=str(values["mirror.id"]),
        starts_latest=reset == "latest",
        appends=existing == "append",
        given=dict(properties),
        **{name: values[key] for name, key in _PLAIN.items()},  # type: ignore[arg-type]
        **{name: int(str(values[key])) / unit for name, (key, unit) in _TIMES.items()},  # type: ignore[arg-type]
    )


_PLAIN = {
    "instance_id": "group.instance.id", "buckets": "mirror.buckets", "commit_bytes": "commit.bytes",
    "replication_factor": "replication.factor", "syncs_configs": "sync.topic.configs.enabled",
    "topic_configs": "topic.configs", "syncs_acls": "sync.topic.acls.enabled",
    "syncs_groups": "sync.group.offsets.enabled", "metrics_listen": "metrics.listen",
    "metrics_config": "metrics.config",
    "transaction_timeout_ms": "target.transaction.timeout.ms",
    "fetch_min_bytes": "source.fetch.min.bytes", "fetch_wait_ms": "source.fetch.max.wait.ms",
    "fetch_bytes": "source.fetch.max.bytes",
    "fetch_partition_bytes": "source.max.partition.fetch.bytes",
}  # fmt: skip
_TIMES = {
    "commit_s": ("commit.interval.ms", 1000),
    "refresh_s": ("refresh.topics.interval.seconds", 1),
    "configs_s": ("sync.topic.configs.interval.seconds", 1),
    "groups_s": ("sync.group.offsets.interval.seconds", 1),
    "heartbeat_s": ("emit.heartbeats.interval.seconds", 1),
}


def _parsed(key: ConfigKey, given: Mapping[str, str]) -> object:
    text = given.get(key.name)
    return key.default if text is None else key.parse(text)


def _choice(values: Mapping[str, object], name: str, words: tuple[str, ...]) -> str:
    value = str(values[name])
    if value not in words:
        raise UsageError(f"{name} is {value!r}: use {' or '.join(words)}")
    return value


def _with_known_names(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties under their own names. Raises UsageError for an unknown or doubled one."""
    given: dict[str, str] = {}
    sides = {f"{side}.{key.name}" for side in ("source", "target") for key in CONNECTION_KEYS}
    known = {key.name for key in KEYS} | sides
    for name, value in properties.items():
        if name in ENQUEUE_TIMEOUTS:
            if value.strip() != "-1":
                raise UsageError(
                    f"{name} is {value!r}: a mirror waits for room and drops nothing; use -1, or "
                    "leave it out"
                )
            continue
        own = ALIASES.get(name, name)
        if own in given:
            raise UsageError(f"{name} and {own} are both given, and mean the same: keep one")
        side, _, rest = own.partition(".")
        if own not in known and not (side in ("source", "target") and is_security_key(rest)):
            raise UsageError(_unknown(name, [*known, *ALIASES]))
        given[own] = value
    return given


def _unknown(name: str, known: Iterable[str]) -> str:
    if name == "clusters" or "->" in name:
        return (
            f"{name}: a mirror has one direction: name its clusters by source.bootstrap.servers "
            "and target.bootstrap.servers, in a file of its own"
        )
    names = sorted(known)
    ending = [k for k in names if k.endswith(f".{name}")]
    near = ending or difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/mirror.md lists the properties"
    return f"a mirror has no property {name!r}: {hint}"


def _side(name: str, given: Mapping[str, str]) -> Side:
    own = {k.removeprefix(f"{name}."): v for k, v in given.items() if k.startswith(f"{name}.")}
    servers = own.get("bootstrap.servers")
    if not servers:
        raise UsageError(f"{name}.bootstrap.servers is missing: give host:port,...")
    try:
        bootstrap = parse_bootstrap(servers)
        credentials = _credentials({k: v for k, v in own.items() if is_security_key(k)})
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    values = {key.name: _parsed_in(name, key, own) for key in CONNECTION_KEYS}

    def number(key: str) -> int:
        return int(str(values[key]))

    options = ClusterOptions(
        client_id=str(values["client.id"]),
        request_timeout_ms=number("request.timeout.ms"),
        connect_timeout_ms=number("socket.connection.setup.timeout.ms"),
        retry_backoff_ms=number("retry.backoff.ms"),
        retry_backoff_max_ms=number("retry.backoff.max.ms"),
        metadata_max_age_ms=number("metadata.max.age.ms"),
        receive_buffer_bytes=number("receive.buffer.bytes"),
        send_buffer_bytes=number("send.buffer.bytes"),
        credentials=credentials,
    )
    return Side(name, bootstrap, servers, options)


def _parsed_in(side: str, key: ConfigKey, own: Mapping[str, str]) -> object:
    try:
        return _parsed(key, own)
    except UsageError as error:
        raise UsageError(f"{side}.: {error}") from None


def _credentials(properties: Mapping[str, str]) -> Credentials:
    return credentials_of(properties) if properties else NO_CREDENTIALS


def reversed_properties(config: MirrorConfig, mirror_id: str) -> dict[str, str]:
    """The properties of the mirror in the other direction, secrets included. Raises UsageError."""
    other = {"source": "target", "target": "source"}
    found = {"mirror.id": mirror_id}
    one_sided = {key.name for key in KEYS if key.name.startswith(("source.", "target."))}
    for name, value in config.given.items():
        side, _, rest = name.partition(".")
        if name in ("mirror.id", "metrics.listen", "metrics.config", "group.instance.id"):
            continue
        swapped = f"{other[side]}.{rest}" if side in other and name not in one_sided else name
        found[swapped] = value
    if mirror_id == config.mirror_id:
        raise UsageError(f"--id {mirror_id} is this mirror's own: the other direction needs one")
    parse_config(found)
    return found
