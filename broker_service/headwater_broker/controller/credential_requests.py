"""AlterUserScramCredentials as the controller executes it: checks, and the edits that remain."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.security.saslprep import is_prepared
from headwater.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
    format_credential,
    mechanism_of_code,
)
from headwater.wire.apis.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater_broker.controller.events import CredentialEdit, TopicResult

Change = ScramCredentialDeletion | ScramCredentialUpsertion
Errors = dict[str, tuple[ErrorCode, str | None]]
"""User -> the first error of its changes."""

NAME_BYTES_MAX = 1024
SALT_BYTES_MAX = 1024


def credential_edits(
    request: AlterUserScramCredentialsRequest,
) -> tuple[Errors, tuple[CredentialEdit, ...]]:
    """(errors, edits). A user with an error is not changed at all.

    Kafka refuses two changes of one user in one request; here they may be of two mechanisms.
    """
    errors: Errors = {}
    edits: dict[tuple[str, int], CredentialEdit] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        try:
            if (change.name, change.mechanism) in edits:
                text = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
            edits[change.name, change.mechanism] = _edit(change)
        except KafkaError as error:
            errors.setdefault(change.name, (error.code, error.detail))
    return errors, tuple(edit for edit in edits.values() if edit.user not in errors)


def credential_response(
    refused: Errors, edits: Sequence[CredentialEdit], results: Sequence[TopicResult]
) -> AlterUserScramCredentialsResponse:
    """One row per user."""
    rows: Errors = dict(refused)
    for edit, result in zip(edits, results, strict=True):
        if rows.get(edit.user, (ErrorCode.NONE, None))[0] is ErrorCode.NONE:
            rows[edit.user] = (ErrorCode(result.error), result.message or None)
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user, (code, message) in rows.items()
        )
    )


def _edit(change: Change) -> CredentialEdit:
    """Raises KafkaError for a change that is not valid."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = mechanism_of_code(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        return CredentialEdit(change.name, mechanism.value, None)
    _check(change, mechanism)
    credential = credential_of(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )
    return CredentialEdit(change.name, mechanism.value, format_credential(credential))


def _check(change: ScramCredentialUpsertion, mechanism: ScramMechanism) -> None:
    """Names with several spellings are refused, too: RFC 5802 wants them prepared by SASLprep."""
    problem = ""
    if change.iterations < ITERATIONS_MIN:
        problem = "Too few iterations"
    elif change.iterations > ITERATIONS_MAX:
        problem = "Too many iterations"
    elif not is_prepared(change.name):
        problem = "Username is changed or prohibited by SASLprep (RFC 4013): choose another one"
    elif len(change.name.encode()) > NAME_BYTES_MAX:
        problem = f"Username has more than {NAME_BYTES_MAX} bytes"
    elif not 0 < len(change.salt) <= SALT_BYTES_MAX:
        problem = f"The salt must have 1 to {SALT_BYTES_MAX} bytes"
    elif len(change.salted_password) != mechanism.key_bytes:
        problem = f"The salted password must have {mechanism.key_bytes} bytes"
    if problem:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
