"""The one exception that is meant for the person at the keyboard."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGPIPE
from typing import Final

_MEMORY: Final = re.compile("out of memory|can't allocate memory")  # as torch says it
_WORD: Final = re.compile(r"\S{300,}")  # no name or path of people: what they gave, or a file holds, is not all said


class InputError(ValueError):
    """Something the user gave is wrong; the message says what, and what to do, in one sentence."""

    def _render_traceback_(self) -> list[str]:
        """What notebooks show of it: the sentence, without the calls that led to it."""
        return [f"{type(self).__name__}: {self}"]


def first_line(error: Exception) -> str:
    """The first sentence or line of what another library says, with a stop at its end.

    Of a repository that is not there the client of the Hub says no more than the number of an HTTP status.
    """
    from huggingface_hub.errors import RepositoryNotFoundError  # takes a moment

    if isinstance(error, RepositoryNotFoundError):
        return "the Hub has no repository of that name, or none that the token may read."
    if isinstance(error, KeyError) and len(str(error).split()) == 1:  # its words are the key alone
        return f"there is no {error}."
    said = str(error).strip() or type(error).__name__
    return said.splitlines()[0].rstrip(".") + "."


@contextmanager
def as_sentence(said: str) -> Iterator[None]:
    """Say in a sentence that something cannot be read: over a broken file, libraries raise whatever they come to.

    Args:
        said: the sentence, to which the library's own words are added.

    Raises:
        InputError: for every exception.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{said}: {first_line(error)}") from error


def sentence_of(error: Exception) -> str | None:
    """What is wrong with what was given, or with the machine, in a sentence; None of an error that is neither.

    It is an `InputError`, a file that cannot be read or written, text that is none, or more memory than there is.
    """
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_nowhere():
        return "The working directory was removed; change to one that is there, and start again."
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or first_line(error).rstrip('.')}; see to it and start again."
    if isinstance(error, UnicodeError):
        return f"A text that is read is not UTF-8 ({error}); correct the file that holds it."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(str(error))):
        return f"There is not enough memory ({first_line(error).rstrip('.')}); make what is read or asked for smaller."
    return None


def _is_nowhere() -> bool:
    """Whether the working directory is gone."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def run_main(main: Callable[[], None]) -> None:
    """Run a command's `main`; an error of which there is a sentence becomes a line on standard error and exit code 2.

    Stopped by Ctrl-C, a command says so, and ends with exit code 130; where whoever reads what it prints has stopped
    (`| head`), it ends in silence with 141.
    """
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say("\nStopped. The same command goes on where it was, or begins anew.")
        sys.exit(128 + SIGINT)
    except BrokenPipeError:  # whoever read what was printed has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as nobody reads what Python still flushes
        sys.exit(128 + SIGPIPE)
    except Exception as error:
        if (said := sentence_of(error)) is None:
            raise
    else:
        return
    _say(f"error: {one_line(said)}")
    sys.exit(2)


def _say(said: str) -> None:
    """Print on standard error, which may be a file on a full disk: the exit code is right all the same."""
    try:
        print(said, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # as Python flushes it again when it ends


def one_line(said: str) -> str:
    """A sentence in one line, in which no word is endless.

    >>> one_line("The value\\n" + "7" * 5000 + " is no number.")
    'The value 7777777777777777777777777777777777777777... is no number.'
    """
    return _WORD.sub(lambda word: f"{word[0][:40]}...", " ".join(said.split()))
