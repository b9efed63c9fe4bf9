"""The driver's commands to a broker's task, and their replies."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from headwater.errors import HeadwaterError, UsageError
from headwater_spark.cluster.driver_link import LOG_TAIL, TaskLink
from headwater_spark.cluster.link_channel import PlainChannel

Ends = tuple[TaskLink, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    driver, task = socket.socketpair()
    link = TaskLink(PlainChannel(driver))
    yield link, task
    link.close()
    task.close()


def answer(link: TaskLink, task: socket.socket, **facts: str) -> None:
    """As the task does it: read a command, reply to it through the driver's reading thread."""
    request = json.loads(task.recv(1000))
    link.on_reply({"event": "reply", "request": request["request"] + 1, "text": "of another one"})
    link.on_reply({"event": "reply", "request": request["request"], **facts})


def test_a_reply_reaches_the_command_that_it_belongs_to(ends: Ends) -> None:
    link, task = ends
    thread = threading.Thread(target=answer, args=(link, task), kwargs={"text": "the log"})
    thread.start()
    assert link.ask(LOG_TAIL, 10, size=7)["text"] == "the log"
    thread.join()


def test_a_refusal_is_the_users_error(ends: Ends) -> None:
    link, task = ends
    thread = threading.Thread(target=answer, args=(link, task), kwargs={"error": "no such file"})
    thread.start()
    with pytest.raises(UsageError, match="no such file"):
        link.ask(LOG_TAIL, 10, size=7)
    thread.join()


def test_a_task_that_ends_fails_its_commands_at_once(ends: Ends) -> None:
    link, task = ends

    def end() -> None:
        task.recv(1000)
        link.close()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(HeadwaterError, match="task has ended"):
        link.ask(LOG_TAIL, 10, size=7)
    thread.join()
    with pytest.raises(HeadwaterError, match="task has ended"):
        link.ask(LOG_TAIL, 10, size=7)
