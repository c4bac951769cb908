"""Waiting by looking, never by sleeping out a guess."""

import time


def eventually(look, within=15.0, what=None, every=0.02):
    """The first truthy answer of `look`, or a failure that says what was waited for and what was seen last."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within:g} s: {what or look.__name__}; last seen: {seen!r}")
        time.sleep(every)


def stays(look, during, what, every=0.05):
    """Checks that `look` stays true for `during` seconds."""
    deadline = time.monotonic() + during
    while time.monotonic() < deadline:
        assert look(), what
        time.sleep(every)
