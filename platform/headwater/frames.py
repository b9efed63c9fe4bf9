"""Topics as frames: `from headwater.frames import read_topic`. Needs the extra `arrow`."""

from __future__ import annotations

from headwater.client.frames import TopicFrame, read_topic

__all__ = ["TopicFrame", "read_topic"]
