"""The one exception that is meant for the person at the keyboard."""

from __future__ import annotations

import sys
from collections.abc import Callable


class InputError(ValueError):
    """Something the user gave is wrong; the message says what, and what to do, in one sentence."""

    def _render_traceback_(self) -> list[str]:
        """What notebooks show of it: the sentence, without the calls that led to it."""
        return [f"{type(self).__name__}: {self}"]


def first_line(error: Exception) -> str:
    """The first sentence or line of what another library says, with a stop at its end."""
    said = str(error).strip() or type(error).__name__
    return said.splitlines()[0].rstrip(".") + "."


def run_main(main: Callable[[], None]) -> None:
    """Run a command's `main`; an `InputError` becomes one line on standard error and exit code 2."""
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
