"""Why replies of the rights matrix differ from Apache Kafka's."""

from __future__ import annotations

from suites.rights_requests import GONE

_STATE_TOPIC = "Kafka was asked before its share coordinator had made its topic."
_EMPTIED = "Not of rights: Kafka's log begins later by then (its run took longer)."
_UNKNOWN = "Of an unknown topic: UNKNOWN_TOPIC_OR_PARTITION here, INVALID_REQUEST by Kafka."
MEANT = {
    "Metadata of all": _STATE_TOPIC,
    "ListConfigResources": _STATE_TOPIC,
    "Fetch": _EMPTIED,
    "ReadShareGroupState": _UNKNOWN,
    "WriteShareGroupState": _UNKNOWN,
    "AlterShareGroupOffsets": (
        "Kafka shows the id of a topic that the user may not read; here it is zero."
    ),
    "DeleteShareGroupState": "To delete what is not there is no error here.",
    "DescribeConfigs client metrics": (
        "Client metrics (KIP-714) are not served; the rights are checked as in Kafka."
    ),
    f"CreateTopics {GONE}": "A topic that is only validated has no id; Kafka invents one.",
    "Metadata by the id": (
        "Kafka says that there is such a topic (TOPIC_AUTHORIZATION_FAILED); here the answer is "
        "that for an unknown id."
    ),
}
"""Beginning of a request's name -> why the replies differ."""


def reason(request: str) -> str:
    """Why the replies to the request of this name differ; empty when nobody knows."""
    return next((why for start, why in MEANT.items() if request.startswith(start)), "")
