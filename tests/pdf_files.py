"""PDF files, written by hand."""

from __future__ import annotations

from collections.abc import Sequence

_FIRST_PAGE = 10  # number of its object; two for each page


def write_pdf(
    pages: Sequence[Sequence[str]],
    title: str = "",
    outline: Sequence[tuple[int, str, int]] = (),
    stamp: str = "",
    field: str = "",
) -> bytes:
    """The bytes of a PDF.

    Args:
        pages: the lines of each, from above; `\\t` is a space as narrow as in justified print, and each `+` at the
            beginning makes the letters larger.
        title: in its metadata.
        outline: level from 1, title and page (from 0) of each entry, in their order.
        stamp: goes up the margin of the first page, in large letters.
        field: what is filled into a form's field at the foot of the first page.
    """
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R%s%s >>"
        % (b" /Outlines 4 0 R" if outline else b"", b" /AcroForm << /Fields [6 0 R] >>" if field else b""),
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (_references(range(len(pages))), len(pages)),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        5: b"<< /Title %s >>" % _text(title),
    }
    for number, lines in enumerate(pages):
        stream = b"\n".join([b"BT 14 TL 72 760 Td", *map(_line, lines), b"ET"])
        if stamp and not number:
            stream = b"BT /F1 30 Tf 0 1 -1 0 40 200 Tm %s Tj ET\n%s" % (_text(stamp), stream)
        at = _FIRST_PAGE + 2 * number
        objects[at] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R%s"
            b" /Resources << /Font << /F1 3 0 R >> >> >>"
            % (at + 1, b" /Annots [6 0 R]" if field and not number else b"")
        )
        objects[at + 1] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)
    if field:
        objects |= _field(field)
    if outline:
        objects |= _entries(outline, 4, _FIRST_PAGE + 2 * len(pages))
    return _file(objects)


def _line(text: str) -> bytes:
    """What shows a line, and goes to the next."""
    plain = text.lstrip("+")
    parts = b" -200 ".join(_text(part) for part in plain.split("\t"))
    return b"/F1 %d Tf [%s] TJ T*" % (11 + 3 * (len(text) - len(plain)), parts)


def _text(text: str) -> bytes:
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return b"(%s)" % escaped.encode("cp1252")


def _field(text: str) -> dict[int, bytes]:
    """The objects of a field, with what it shows."""
    shown = b"BT /F1 11 Tf 2 5 Td %s Tj ET" % _text(text)
    return {
        6: b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (a) /F 4 /V %s /Rect [72 40 300 60] /AP << /N 7 0 R >> >>"
        % _text(text),
        7: b"<< /Type /XObject /Subtype /Form /BBox [0 0 228 20] /Resources << /Font << /F1 3 0 R >> >> /Length %d >>\n"
        b"stream\n%s\nendstream" % (len(shown), shown),
    }


def _references(pages: range) -> bytes:
    return b" ".join(b"%d 0 R" % (_FIRST_PAGE + 2 * number) for number in pages)


def _entries(outline: Sequence[tuple[int, str, int]], root: int, start: int) -> dict[int, bytes]:
    """The objects of an outline: each entry knows the one above it, its neighbours, and the first and last below it."""
    above, below = list[int](), dict[int, list[int]]()
    for number, (level, _, _) in enumerate(outline, start=start):
        above = above[: level - 1]
        below.setdefault(above[-1] if above else root, []).append(number)
        above.append(number)
    objects = {root: b"<< /Type /Outlines%s >>" % _ends(below[root])}
    for parent, entries in below.items():
        for before, entry, after in zip([0, *entries], entries, [*entries[1:], 0], strict=False):
            _, title, page = outline[entry - start]
            target = b"/Dest [%d 0 R /XYZ 0 760 0]" % (_FIRST_PAGE + 2 * page)
            links = b"".join(b" /%s %d 0 R" % pair for pair in ((b"Prev", before), (b"Next", after)) if pair[1])
            inner = _ends(below[entry]) if entry in below else b""
            objects[entry] = b"<< /Title %s /Parent %d 0 R %s%s%s >>" % (_text(title), parent, target, links, inner)
    return objects


def _ends(entries: Sequence[int]) -> bytes:
    return b" /First %d 0 R /Last %d 0 R /Count %d" % (entries[0], entries[-1], len(entries))


def _file(objects: dict[int, bytes]) -> bytes:
    out, table = b"%PDF-1.4\n", list[bytes]()
    for number, body in sorted(objects.items()):
        table.append(b"%d 1\n%010d 00000 n \n" % (number, len(out)))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n" + b"".join(table)
    size = max(objects) + 1
    return out + b"trailer << /Size %d /Root 1 0 R /Info 5 0 R >>\nstartxref\n%d\n%%%%EOF" % (size, start)
