from __future__ import annotations

import pytest

from hf_dense.data.python_docs.prose import letter_share, read_prose
from hf_dense.data.sentences import split_sentences

NUMPY_STYLE = """
    Compute the softmax function. It maps to (0, 1).

    Parameters
    ----------
    x : array_like
        Input array.
    axis : int, optional
        Axis to compute along.

    Returns
    -------
    s : ndarray
        An array the same shape as `x`.

    See Also
    --------
    log_softmax : The logarithm of this.

    Notes
    -----
    Uses :func:`~scipy.special.logsumexp` inside [1]_.

    References
    ----------
    .. [1] Somebody, A Book.

    Examples
    --------
    Normalise a row:

    >>> softmax([1, 2])
    array([0.26894142, 0.73105858])

    The rows sum to one.
    """


def test_numpy_style_sections() -> None:
    prose = read_prose(NUMPY_STYLE)
    assert prose.summary == "Compute the softmax function."
    assert prose.paragraphs == (
        "It maps to (0, 1).",
        "x (array_like): Input array.",
        "axis (int, optional): Axis to compute along.",
        "Returns: s (ndarray): An array the same shape as x.",
        "Uses scipy.special.logsumexp inside.",
        "Normalise a row:",
        "The rows sum to one.",
    )


def test_google_style_entries_become_paragraphs() -> None:
    prose = read_prose(
        """Loads data.

        Args:
            path (str): where it lies, which
                may be a directory
            strict (bool): whether to fail
        Returns:
            The rows.
        """
    )
    assert prose.paragraphs == (
        "path (str): where it lies, which may be a directory.",
        "strict (bool): whether to fail.",
        "Returns: The rows.",
    )


@pytest.mark.parametrize(
    "code",
    [
        "```python\nforbidden()\n\nforbidden()\n```",
        ">>> forbidden()\nforbidden",
        "Like this::\n\n    forbidden()\n\n    forbidden()\n",
        ".. code-block:: python\n\n    forbidden()\n",
        ".. math::\n   forbidden = x^2\n",
        ".. [1] forbidden\n",
        "| forbidden | table |",
        "forbidden 1.2345 2.3456 3.4567 4.5678",
    ],
)
def test_code_and_numbers_are_dropped_and_the_text_after_them_stays(code: str) -> None:
    prose = read_prose(f"Do a thing.\n\n{code}\n\nText after it.")
    assert "forbidden" not in " ".join(prose.paragraphs)
    assert prose.paragraphs[-1] == "Text after it."


def test_admonition_text_stays() -> None:
    prose = read_prose("Do a thing.\n\n.. warning:: Mind the gap.\n\n.. note::\n\n    Really mind it.\n")
    assert prose.paragraphs == ("Mind the gap.", "Really mind it.")


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":class:`~torch.nn.Linear` and :py:mod:`os`", "torch.nn.Linear and os"),
        ("see :term:`Glossary <random_state>` here", "see Glossary here"),
        ("a [link](https://example.org/a_(b)) here", "a link here"),
        ("`Text <https://example.org>`_ here", "Text here"),
        ("**bold** and *soft*, but *args and **kwargs", "bold and soft, but *args and **kwargs"),
        ("``code`` with 3/4) and *x* minus y", "code with 3/4) and x minus y"),
        ("see (https://example.org) there", "see there"),
    ],
)
def test_markup_is_reduced_to_words(marked: str, plain: str) -> None:
    assert read_prose(f"The {marked}").summary == f"The {plain}."


def test_opening_section_or_signature_is_no_summary() -> None:
    assert read_prose("Args:\n    x: a number\n").summary == ""
    assert read_prose("f(x, y) -> z\n\nAdds two numbers.").summary == "Adds two numbers."
    assert read_prose("DataFrame\n---------\nA table of data.").summary == "A table of data."


def test_broken_characters_are_removed() -> None:
    prose = read_prose("Bad \ud800 half\x00 of a pair.")
    assert prose.summary == "Bad half of a pair."
    assert prose.summary.encode("utf-8")


def test_empty_docstrings() -> None:
    for text in ("", "   \n", ">>> 1 + 1\n2", "1 2 3"):
        assert read_prose(text) == read_prose("")


def test_dotted_names_do_not_end_a_sentence() -> None:
    assert split_sentences("It raises binascii.Error here. Then stops.") == [
        "It raises binascii.Error here.",
        "Then stops.",
    ]


def test_letter_share() -> None:
    assert letter_share("ab 12") == 0.5
    assert letter_share("  ") == 0.0
    assert letter_share("हिन्दी में") == letter_share("e\u0301te\u0301") == 1.0, "signs of vowels belong to their letters"
