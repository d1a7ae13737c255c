"""Fonts of pictures: names in any script are written where a font of this machine has it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from warnings import catch_warnings, filterwarnings

from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text

logger = logging.getLogger(__name__)

_BOXES: Final = "Last Resort"  # matplotlib's own font, which has a box for every letter
_REGULAR: Final = 400


@contextmanager
def readable_letters(figure: Figure) -> Iterator[None]:
    """Write the names in a picture that is saved inside of this with fonts that have their letters.

    A log line says which letters no font of this machine has.

    Args:
        figure: whose default font has Latin, Greek, Cyrillic and Arabic letters, but none of Chinese, Thai or Hindi.
    """
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    families, lacking = _families({letter for text in texts for letter in text.get_text() if not letter.isspace()})
    for text in texts:
        text.set_fontfamily(families)
    if lacking:
        shown = "".join(sorted(lacking)[:10])
        logger.warning("No font of this machine has the letters %s, which pictures show as boxes.", shown)
    with catch_warnings():
        filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)  # one for each letter
        yield


def _families(letters: set[str]) -> tuple[list[str], set[str]]:
    """Names of fonts that have some letters between them, the default first, and the letters that none has."""
    families = list(rcParams["font.family"])
    lacking = _lacking(letters, findfont(FontProperties(family=families)))
    for name, file in _installed().items() if lacking else ():
        with suppress(RuntimeError):  # a file that cannot be read
            left = _lacking(lacking, file)
            if left != lacking:
                families.append(name)
                lacking = left
    return families, lacking


def _installed() -> dict[str, str]:
    """Files of the fonts of this machine by their names, in the weight of texts."""
    fonts = {font.name: font.fname for font in fontManager.ttflist if font.weight == _REGULAR}
    return {name: fonts[name] for name in sorted(fonts) if not name.startswith(_BOXES)}


def _lacking(letters: set[str], file: str) -> set[str]:
    known = get_font(file).get_charmap()
    return {letter for letter in letters if ord(letter) not in known}
