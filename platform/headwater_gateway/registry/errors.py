"""The registry's error replies: HTTP status and Confluent's error codes (its `Errors`)."""

from __future__ import annotations

from headwater.errors import HeadwaterError

INVALID_SCHEMA = 42201
INVALID_VERSION = 42202
INVALID_COMPATIBILITY_LEVEL = 42203
INVALID_MODE = 42204
OPERATION_NOT_PERMITTED = 42205
REFERENCE_EXISTS = 42206
INVALID_SUBJECT = 42208
SCHEMA_TOO_LARGE = 42209
CONTEXT_NOT_EMPTY = 42211
STORE_ERROR = 50001
OPERATION_TIMEOUT = 50002
UNKNOWN_LEADER = 50004


class RegistryError(HeadwaterError):
    """An error reply: `status` of HTTP, `code` in the body."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


def unprocessable(code: int, message: str) -> RegistryError:
    """A well-formed request that cannot be done (422)."""
    return RegistryError(422, code, message)


def invalid_schema(detail: str) -> RegistryError:
    """The schema does not parse, or a reference of it does not exist."""
    return unprocessable(INVALID_SCHEMA, f"Invalid schema: {detail}")


def invalid_version(version: str) -> RegistryError:
    """A version that is neither a number from 1 on, nor `latest`."""
    return unprocessable(
        INVALID_VERSION,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_subject(subject: str) -> RegistryError:
    """An empty subject, or one with control characters."""
    return unprocessable(INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")


def not_permitted(message: str) -> RegistryError:
    """The mode does not allow it."""
    return unprocessable(OPERATION_NOT_PERMITTED, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Another schema refers to the version that would go."""
    return unprocessable(
        REFERENCE_EXISTS,
        f"One or more references exist to the schema {subject} version {version}.",
    )


def subject_not_found(subject: str) -> RegistryError:
    """40401."""
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    """40402."""
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(which: int | str = "") -> RegistryError:
    """40403; `which`: an id or a guid."""
    named = f"Schema {which} not found" if which != "" else "Schema not found"
    return RegistryError(404, 40403, named)


def subject_soft_deleted(subject: str) -> RegistryError:
    """40404: it is deleted softly already."""
    return RegistryError(
        404,
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """40405: a permanent deletion follows a soft one."""
    return RegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """40406: it is deleted softly already."""
    return RegistryError(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """40407: a permanent deletion follows a soft one."""
    return RegistryError(
        404,
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently "
        "deleted",
    )


def compatibility_not_configured(subject: str) -> RegistryError:
    """40408."""
    return RegistryError(
        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_configured(subject: str) -> RegistryError:
    """40409."""
    return RegistryError(
        404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
    )


def incompatible(subject: str, problems: list[str]) -> RegistryError:
    """409: the new schema breaks the subject's compatibility level."""
    return RegistryError(
        409,
        409,
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(problems)}]',
    )
