"""How `headwater up` gives its options, which may hold passwords, to the process it starts."""

from __future__ import annotations

import os

import pytest

from headwater.errors import UsageError
from headwater.local.daemon import UpOptions, command, read_options, send_options

SECRET = "pass-phrase"
OPTIONS = UpOptions("/d", 2, 9092, properties={"ssl.keystore.password": SECRET}, secure=True)


def test_no_option_is_in_the_arguments_that_every_user_sees() -> None:
    assert SECRET not in " ".join(command(OPTIONS)) + repr(OPTIONS)


def test_options_come_by_stdin_which_is_empty_afterwards() -> None:
    stdin, given = os.pipe()
    try:
        send_options(OPTIONS, os.fdopen(given, "wb"))
        assert read_options(stdin) == OPTIONS
        assert os.path.samestat(os.fstat(stdin), os.stat(os.devnull))
    finally:
        os.close(stdin)


def test_a_caller_that_died_gives_no_options() -> None:
    stdin, given = os.pipe()
    os.close(given)
    try:
        with pytest.raises(UsageError, match="headwater up"):
            read_options(stdin)
    finally:
        os.close(stdin)


def test_a_process_that_died_takes_no_options() -> None:
    stdin, given = os.pipe()
    os.close(stdin)
    send_options(OPTIONS, os.fdopen(given, "wb"))
