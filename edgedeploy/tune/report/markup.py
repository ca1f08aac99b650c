"""Elements of HTML and SVG. Python's ElementTree writes them, and escapes whatever text they hold."""

from __future__ import annotations

from importlib import resources
from xml.etree.ElementTree import Element, tostring

from edgedeploy.text import printable

Content = Element | str | None


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """An element with its content in order. What is None is left out.

    In attributes' names an underscore stands for a dash, and `class_` for `class`; numbers are lengths in pixels.
    Text is made printable.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), printable(value) if isinstance(value, str) else length(value))
    last: Element | None = None
    for part in content:
        if isinstance(part, str):
            if last is None:
                made.text = (made.text or "") + printable(part)
            else:
                last.tail = (last.tail or "") + printable(part)
        elif part is not None:
            made.append(part)
            last = part
    return made


def length(value: float) -> str:
    """A length or a place in a drawing, to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def document(title: str, *content: Content) -> str:
    """A whole page, with its own style sheet. Its readers' browsers are told to load nothing and to run nothing."""
    style = Element("style")
    style.text = (resources.files("edgedeploy.tune.report") / "style.css").read_text(encoding="utf-8")
    policy = {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"}
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Element("meta", policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        style,
    )
    page = element("html", head, element("body", element("main", *content)), lang="en")
    return "<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html") + "\n"
