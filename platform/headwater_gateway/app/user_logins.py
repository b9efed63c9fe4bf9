"""Whether each request brings a login of its own; a process that has an identity needs that. Pure.

Where nobody logs in, whoever reaches the process acts with what the brokers take it for.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import UsageError

IDENTITY = ("ssl.keystore.", "ssl.key.")


def users_log_in(properties: Mapping[str, str], user_bootstrap_server: str | None) -> bool:
    """True where users log in at the brokers, by SASL. `properties`: of --command-config.

    Raises UsageError where they do not, and the process has a certificate of its own.
    """
    protocol = properties.get("security.protocol", "").upper()
    if protocol.startswith("SASL") or user_bootstrap_server is not None:
        return True
    own = [name for name, text in properties.items() if text and name.startswith(IDENTITY)]
    if protocol == "SSL" and own:
        raise UsageError(
            f"--command-config has {min(own)}, and nobody logs in here: whoever reaches this"
            " process would act with its certificate. Give --user-bootstrap-server, a listener of"
            " the brokers with SASL_SSL; or a file without ssl.keystore.* and ssl.key.*"
        )
    return False
