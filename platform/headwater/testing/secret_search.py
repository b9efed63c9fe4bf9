"""Searches what a secure cluster leaves behind for each of its secrets.

It reads every file in D and in the other folders (logs, event logs, checkpoints, Delta tables), the
arguments of all processes and the environments of the cluster's, and the znodes that a stranger may
read; also what is compressed in these files. A file that cannot be read is a finding: it was not
searched. The places that hold secrets by design are left out: D/security and D/conf, both private.
"""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from headwater.errors import KafkaError
from headwater.local import cluster_file, processes
from headwater.local.data_folders import read_properties
from headwater.local.secure_cluster import REGISTRY_LOGIN
from headwater.local.zk_client import readable_znodes
from headwater.security.jaas import parse_jaas
from headwater.testing.unpacked import unpacked

PRIVATE_FOLDERS = ("security", "conf")
KEY_LINE = 2
"""A line in the middle of a PEM key: the first lines of all keys are alike."""
CHUNK_BYTES = 1 << 20
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret, named and not shown, in a place where it must not be."""

    place: str
    secret: str


def secrets_of(directory: Path) -> dict[str, str]:
    """Every secret value of a secure cluster, by what it is."""
    security = directory / "security"
    login = parse_jaas(read_properties(security / "client.properties")["sasl.jaas.config"])
    shared = read_properties(security / "secrets.properties")
    tiering = security / "tiering.properties"
    at_registry = read_properties(tiering).get(REGISTRY_LOGIN, "") if tiering.exists() else ""
    keys = {f"key of {p.stem}": _key_line(p) for p in security.glob("*.pem") if p.stem != "ca"}
    of_tasks = security.glob("broker-*/keystore.pem")  # made by the broker's task, under Spark
    keys |= {f"key of {p.parent.name}": _key_line(p) for p in of_tasks}
    return {
        "the admin's password": login.options["password"],
        "the key of delegation tokens": shared["delegation.token.secret.key"],
        "the brokers' ZooKeeper password": shared["headwater.zookeeper.digest"].partition(":")[2],
        **keys,
        **({"tiering's password": at_registry.partition(":")[2]} if at_registry else {}),
    }


def search(
    directory: Path, secrets: Mapping[str, str], also: Iterable[Path] = ()
) -> tuple[list[Finding], int]:
    """What was found, and the number of places that were looked at."""
    forms = {form: what for what, secret in secrets.items() for form in _forms(secret)}
    found: set[Finding] = set()
    count = 0
    for place, parts in places(directory, also):
        count += 1
        tail = b""
        longest = max(map(len, forms))
        try:
            for part in parts:
                text = tail + part
                found |= {Finding(place, what) for form, what in forms.items() if form in text}
                tail = text[-longest:]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has gone meanwhile
        except (OSError, ValueError, KafkaError, zipfile.BadZipFile) as error:
            found.add(Finding(place, f"what it holds, as it cannot be read ({error})"))
    return sorted(found), count


def places(directory: Path, also: Iterable[Path]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every place with its content. `also`: more folders and files."""
    private = [directory / name for name in PRIVATE_FOLDERS]
    for folder in (directory, *also):
        for path in (folder, *sorted(folder.rglob("*"))):
            if path.is_file() and not any(path.is_relative_to(p) for p in private):
                yield str(path), _chunks(path)
                yield f"{path}, unpacked", unpacked(path)
    yield from _commands()
    for process in processes.of_cluster(directory):
        yield f"environment of {process.name}", _chunks(Path(f"/proc/{process.pid}/environ"))
    cluster = cluster_file.load(directory)
    if cluster is not None and cluster.running:
        for znode, data in readable_znodes(cluster.zookeeper):
            yield f"znode {znode}", [data]


def _commands() -> Iterator[tuple[str, Iterable[bytes]]]:
    """The arguments of every process of the machine: every user can read them."""
    for pid in psutil.pids():
        yield f"arguments of process {pid}", _chunks(Path(f"/proc/{pid}/cmdline"))


def _forms(secret: str) -> set[bytes]:
    """A secret as it may be written: plain, quoted for URLs or JSON, in base64, alone or within
    more text (`user:secret`)."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()}
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw)
        # The first characters hold bits of what stands before, the last one of what follows.
        inside = text[(before * 8 + 5) // 6 :].rstrip(b"=")
        inside = inside[:-1] if (before + len(raw)) % 3 else inside
        found |= {inside, inside.translate(_URL_SAFE)}
    return found


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while part := file.read(CHUNK_BYTES):
            yield part


def _key_line(path: Path) -> str:
    return path.read_text().splitlines()[KEY_LINE]
