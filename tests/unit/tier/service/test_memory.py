"""Which pages are given back: the compiler's code, and nothing that was relocated or written."""

from __future__ import annotations

from headwater_tier.service.memory import compiler_pages, release

MAPS = """\
7f00-7f80 r--p 00000000 fe:00 1 /x/libllvmlite.so
8000-a000 r-xp 00000000 fe:00 1 /x/libllvmlite.so
a000-b000 rw-p 00000000 fe:00 1 /x/libllvmlite.so
c000-d000 r-xp 00000000 fe:00 2 /x/libarrow.so.2600
e000-f000 rw-p 00000000 00:00 0
"""


def test_only_code_of_the_compiler_is_dropped() -> None:
    assert compiler_pages(MAPS) == [(0x8000, 0x2000)]


def test_releasing_is_harmless() -> None:
    release()
