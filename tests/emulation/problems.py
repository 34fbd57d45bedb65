"""What can be wrong with a text, and with the emulation of it."""

from __future__ import annotations


class Fault(Exception):  # noqa: N818 - what it is called in tests
    """The emulated program did what no program may do: an access outside of memory or a misaligned
    one, threads that wait for ever, lanes of a warp that part.
    """


class Unsupported(Exception):  # noqa: N818
    """The emulation does not have what the text uses."""
