"""The question after Ctrl-C while a bag is watched.  Without a terminal to ask on, the bag goes on unwatched."""

from __future__ import annotations

import sys

DETACH, CANCEL, GO_ON = "detach", "cancel", "go on"
CHOICES = {"d": DETACH, "c": CANCEL, "g": GO_ON}


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(bag: int) -> str:
    """Return DETACH, CANCEL or GO_ON; a second Ctrl-C, the end of the input and a mere Enter mean DETACH."""
    while True:
        try:
            sys.stderr.write(f"\nbag {bag}: [d]etach and leave it, [c]ancel it, or [g]o on watching? [d] ")
            sys.stderr.flush()
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            answer = ""
        if not answer.endswith("\n"):
            sys.stderr.write("\n")
        word = answer.strip().lower() or "d"
        for letter, choice in CHOICES.items():
            if choice.startswith(word) and word.startswith(letter):
                return choice
