"""A Kerberos realm on this machine for tests: a KDC of MIT's, with key tables.

Needs the packages krb5-kdc, krb5-admin-server and krb5-user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from peers import wait_for_port

REALM = "HEADWATER.TEST"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KDC, ADMIN, UTIL = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    for name in ("krb5kdc", "kadmin.local", "kdb5_util")
)
IS_THERE = bool(KDC and ADMIN and UTIL)
END_S = 10.0


@dataclass(frozen=True)
class Realm:
    """A running KDC with its key tables."""

    folder: Path

    @property
    def config(self) -> Path:
        """The krb5.conf of its clients."""
        return self.folder / "krb5.conf"

    def key_table(self, principal: str) -> Path:
        """The keys of one principal."""
        return self.folder / f"{principal.replace('/', '_')}.keytab"

    def jaas(self, principal: str, *, is_java: bool = False) -> str:
        """The JAAS line of a login with the key table."""
        more = "useKeyTab=true storeKey=true " if is_java else ""
        table = self.key_table(principal)
        return f'{MODULE} {more}keyTab="{table}" principal="{principal}@{REALM}";'

    def ticket(self, principal: str) -> Path:
        """A credential cache with a fresh ticket, as `kinit` leaves it."""
        cache = self.folder / f"{principal.replace('/', '_')}.ticket"
        _run("kinit", "-c", f"FILE:{cache}", "-k", "-t", self.key_table(principal), principal)
        return cache


@contextmanager
def started(folder: Path, port: int, principals: Sequence[str]) -> Iterator[Realm]:
    """A KDC of these principals; the environment of this process names it until the end."""
    realm = Realm(folder)
    _write_files(realm, port)
    settings = {
        "KRB5_CONFIG": str(realm.config),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5RCACHENAME": f"dfl:{folder}/replays",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        _run(UTIL, "create", "-s", "-r", REALM, "-P", "master key of a test")
        for principal in principals:
            _run(ADMIN, "-q", f"addprinc -randkey {principal}@{REALM}")
            _run(ADMIN, "-q", f"ktadd -k {realm.key_table(principal)} {principal}@{REALM}")
        with (folder / "kdc.log").open("wb") as told:
            kdc = subprocess.Popen([str(KDC), "-n", "-r", REALM], stdout=told, stderr=told)
        try:
            wait_for_port(port, kdc)
            yield realm
        finally:
            kdc.terminate()
            kdc.wait(END_S)
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _write_files(realm: Realm, port: int) -> None:
    folder = realm.folder
    realm.config.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_tcp_listen = 127.0.0.1:{port}\n kdc_listen = ""\n'
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
        f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
    )


def _run(*command: object) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stderr}"
