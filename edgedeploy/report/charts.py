"""Charts: Matplotlib draws SVG to embed in a page. Equal data gives equal bytes, independent of the user's settings.

Matplotlib is imported here only, without pyplot: no window, no backend, no state shared with other users of it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from edgedeploy.base.text import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From this ratio of the largest value to the smallest on, an axis is logarithmic.
LOGARITHMIC_FROM = 5.0

# In inches, of 72 units of the SVG each.
SIZE = 7.8, 3.5

_SETTINGS: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e1e0d9",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with Matplotlib
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.markersize": 4,
    "svg.fonttype": "none",  # the reader's fonts: text can be searched, and needs no outlines
    "svg.hashsalt": "edgedeploy",
    "text.parse_math": False,  # a dollar sign in a name begins no formula
}


class Chart:
    """A chart that is being drawn; `svg` is complete when the block of `chart` has ended."""

    def __init__(self, figure: Figure) -> None:
        self.axes: Axes = figure.subplots()
        self.svg = ""
        self._figure = figure
        self._told: dict[str, tuple[str, Sequence[str]]] = {}

    def tell(self, artist: Artist, kind: str, texts: Sequence[str]) -> None:
        """Show untrusted texts where a reader points: one for each marker, or one for a line or bar of class `kind`."""
        identity = f"told-{len(self._told)}"
        artist.set_gid(identity)
        self._told[identity] = kind, texts

    def scale_vertical(self, values: Sequence[float]) -> None:
        """Scale the vertical axis for positive values: logarithmic if they are far apart."""
        if max(values) / min(values) >= LOGARITHMIC_FROM:
            from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

            self.axes.set_yscale("log")
            many_decades = max(values) > 1000 * min(values)
            self.axes.yaxis.set_major_locator(LogLocator(subs=(1,) if many_decades else (1, 2, 5), numticks=9))
            self.axes.yaxis.set_minor_locator(NullLocator())
            self.axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))

    def count_horizontally(self) -> None:
        """Mark only whole numbers on the horizontal axis."""
        from matplotlib.ticker import MaxNLocator

        self.axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))

    def finish(self, summary: str) -> None:
        """Write the drawing; `summary` is the sentence for screen readers."""
        handles, labels = self.axes.get_legend_handles_labels()
        if handles:
            self._figure.legend(handles, [printable(label) for label in labels], loc="outside lower center", ncols=3)
        written = io.BytesIO()
        self._figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        content = written.getvalue()
        root = ElementTree.fromstring(content)
        names = f"c{hashlib.sha256(content).hexdigest()[:8]}-"
        for each in root.iter():
            self._embed(each, names)
        for metadata in root.findall("metadata"):
            root.remove(metadata)
        box, label = root.get("viewBox", ""), printable(summary)
        root.attrib = {"viewBox": box, "class": "chart", "role": "img", "aria-label": label}
        self.svg = ElementTree.tostring(root, encoding="unicode")

    def _embed(self, each: Element, names: str) -> None:
        """Change an element for a page with other charts: without namespaces, with unique names."""
        each.tag = each.tag.rpartition("}")[2]
        attributes = {name.rpartition("}")[2]: value for name, value in each.attrib.items()}
        identity = attributes.pop("id", "")
        for name, value in attributes.items():
            if name in ("href", "clip-path"):
                attributes[name] = value.replace("#", f"#{names}")
        if identity in self._told:
            kind, texts = self._told[identity]
            attributes["class"] = kind
            places = [mark for mark in each.iter() if mark.tag.endswith("}use")] or [each]
            for place, text in zip(places, texts, strict=True):
                title = Element("title")
                title.text = printable(text)
                place.insert(0, title)
        elif identity and each.tag != "g":  # nothing refers to the names of groups
            attributes["id"] = names + identity
        each.attrib = attributes


def short(name: str, most: int) -> str:
    """A name of at most so many letters, which leave room for the chart."""
    name = printable(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def alone(svg: str, background: str | None = None) -> str:
    """A drawing of a `chart` as an SVG file of its own, on a background colour if given."""
    whole = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    ground = f'><rect width="100%" height="100%" fill="{background}"/>' if background else ">"
    return whole.replace(">", ground, 1)


@contextmanager
def chart(summary: str) -> Iterator[Chart]:
    """Draw a chart in a block; afterwards its `svg` is complete. `summary` is the sentence for screen readers."""
    # Suppress messages about the font cache and the user's settings.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")  # no font here may have the letters of foreign text
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        made = Chart(figure)
        yield made
        made.finish(summary)
