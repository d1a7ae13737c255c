"""Slides are read in the order that they are shown in, each under its title."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from hf_dense.data.readers.kinds import read_page

_SPACES = " ".join(
    f'xmlns:{name}="http://schemas.openxmlformats.org/{place}/2006/{what}"'
    for name, place, what in (
        ("a", "drawingml", "main"),
        ("p", "presentationml", "main"),
        ("r", "officeDocument", "relationships"),
    )
)


def text(*paragraphs: str) -> str:
    return "".join(
        f"<a:p><a:r><a:t>{said[:2]}</a:t></a:r><a:r><a:t>{said[2:]}</a:t></a:r></a:p>" for said in paragraphs
    )


def shape(kind: str, *paragraphs: str) -> str:
    place = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
    return f"<p:sp>{place}<p:txBody>{text(*paragraphs)}</p:txBody></p:sp>"


def write_slides(path: Path, slides: list[str], hidden: int) -> None:
    """In the file the last one comes first."""
    with ZipFile(path, "w") as parts:
        for at, slide in enumerate(slides):
            shown = ' show="0"' if at == hidden else ""
            parts.writestr(f"ppt/slides/s{9 - at}.xml", f"<p:sld {_SPACES}{shown}><p:cSld>{slide}</p:cSld></p:sld>")
        names = "".join(f'<p:sldId r:id="r{at}"/>' for at in range(len(slides)))
        parts.writestr("ppt/presentation.xml", f"<p:d {_SPACES}><p:sldIdLst>{names}</p:sldIdLst></p:d>")
        places = "".join(f'<Relationship Id="r{at}" Target="slides/s{9 - at}.xml"/>' for at in range(len(slides)))
        parts.writestr("ppt/_rels/presentation.xml.rels", f"<Relationships>{places}</Relationships>")


def test_slides(tmp_path: Path) -> None:
    rows = (("Part", "Weight"), ("Pump", "12 kg"))
    cells = ["".join(f"<a:tc><a:txBody>{text(cell)}</a:txBody></a:tc>" for cell in row) for row in rows]
    table = '<a:tbl><a:tblPr firstRow="1"/>' + "".join(f"<a:tr>{row}</a:tr>" for row in cells) + "</a:tbl>"
    slides = [
        shape("ctrTitle", "Training") + shape("subTitle", "For new people"),
        shape("title", "Safety") + shape("body", "Wear gloves", "Wait!") + shape("sldNum", "2"),
        shape("title", "Old") + shape("body", "No longer true"),
        shape("title", "Data") + table + "<p:Choice/><p:Fallback>" + shape("body", "Again") + "</p:Fallback>",
    ]
    write_slides(tmp_path / "a.pptx", slides, hidden=2)
    page = read_page(tmp_path / "a.pptx")
    assert page.title == "Training"
    assert [(section.path, section.text.split("\n\n")) for section in page.sections] == [
        ("", ["For new people."]),
        ("Safety", ["Safety.", "Wear gloves.", "Wait!"]),
        ("Data", ["Data.", "Part: Pump; Weight: 12 kg."]),
    ]
