"""Secrets of object stores: which options hold one, and references instead of them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from headwater.errors import UsageError
from headwater.security.secret import is_readable_in_tasks, is_reference
from headwater.security.store_options import check_no_secret, is_secret, opened, without_secrets
from headwater_spark.options import store_options
from headwater_spark.source.source_options import source_options
from headwater_tier.cli.storage_options import storage_options
from headwater_tier.table_names import TableLocation

SECRETS = (
    "aws_secret_access_key",
    "AWS_SECRET_ACCESS_KEY",
    "secret_access_key",
    "aws_session_token",
    "azure_storage_account_key",
    "account_key",
    "azure_client_secret",
    "azure_storage_sas_token",
    "sas_key",
    "bearer_token",
    "google_service_account_key",
    "fs.s3a.secret.key",
    "some_password",
)
OPEN = (
    "aws_region",
    "aws_access_key_id",
    "aws_endpoint_url",
    "aws_allow_http",
    "azure_storage_account_name",
    "azure_client_id",
    "azure_federated_token_file",
    "aws_web_identity_token_file",
    "google_application_credentials",
    "aws_sse_kms_key_id",
    "timeout",
)


def test_which_options_hold_a_secret() -> None:
    assert [name for name in SECRETS if not is_secret(name)] == []
    assert [name for name in OPEN if is_secret(name)] == []


def test_only_references_pass() -> None:
    why = "write env:NAME"
    fine = [("aws_region", "eu"), ("account_key", "env:KEY"), ("proxy_url", "http://p:1/a@b:c")]
    check_no_secret(fine, "--x ", is_reference, why)
    for row in (("account_key", "hunter2"), ("proxy_url", "http://me:hunter2@p:1")):
        with pytest.raises(UsageError, match=f"--x {row[0]} holds a secret: {why}") as refused:
            check_no_secret([row], "--x ", is_reference, why)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(UsageError):
        check_no_secret([("account_key", "databricks:a/b")], "", is_readable_in_tasks, why)


def test_references_are_followed_where_a_table_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_STORE", "hunter2")
    path = tmp_path / "key"
    path.write_text("hunter3\n")
    given = (("account_key", "env:OF_THE_STORE"), ("sas_key", f"file:{path}"), ("region", "eu"))
    found = {"account_key": "hunter2", "sas_key": "hunter3", "region": "eu"}
    assert opened(given) == opened(dict(given)) == found
    assert without_secrets(given) == {"region": "eu"}
    with pytest.raises(UsageError, match=r"storage option account_key.*no variable 'UNSET'"):
        opened({"account_key": "env:UNSET"})


def test_arguments_and_plans_take_no_secret() -> None:
    given = ("aws_region=eu", "account_key=env:KEY", "sas_key=databricks:s/k")
    assert dict(storage_options(given))["sas_key"] == "databricks:s/k"
    with pytest.raises(UsageError, match=r"--storage-option account_key.*--tables-config") as told:
        storage_options(("account_key=hunter2",))
    assert "hunter2" not in str(told.value)
    with pytest.raises(UsageError) as told:
        storage_options(("hunter2",))
    assert "hunter2" not in str(told.value)
    with pytest.raises(UsageError, match=r"headwater\.storage\.account_key.*\{\{secrets/"):
        store_options({"account_key": "hunter2"})
    reader = {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
    secret = {"headwater.storage.AWS_SECRET_ACCESS_KEY": "hunter2"}
    with pytest.raises(UsageError, match=r"headwater\.storage\.aws_secret_access_key"):
        source_options({**reader, **secret}, streaming=False)
    by_name = {"headwater.storage.aws_secret_access_key": "env:KEY"}
    found = source_options({**reader, **by_name}, streaming=True)
    assert found.storage_options == (("aws_secret_access_key", "env:KEY"),)


def test_what_holds_options_does_not_show_them() -> None:
    place = TableLocation("s3://b", "t", UUID(int=1), (("account_key", "hunter2"),))
    assert "hunter2" not in repr(place)
