"""Pages about measurements, one HTML file each that loads nothing and runs nothing; extra `report` for `charts.py`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from edgedeploy.base.text import printable, significant
from edgedeploy.errors import UnsupportedError
from edgedeploy.version import __version__

if TYPE_CHECKING:
    from markupsafe import Markup

_CODE = re.compile("`([^`]+)`")


def require_report() -> None:
    """Check that pages can be written. Call it before the work."""
    if find_spec("matplotlib") is None:
        raise UnsupportedError("pages need Matplotlib, not installed here", hints=["pip install 'edgedeploy[report]'"])


def render(package: str, template: str, **values: object) -> str:
    """A page as HTML, of a template in `package` that extends `page.html` and may import `macros.html` of this package.

    Text in the values is escaped and made printable, except that of `html`.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, ".") for name in (package, __package__)]),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["significant"] = significant
    return environment.get_template(template).render(version=__version__, **values)


def html(text: str | None) -> Markup | None:
    """HTML or SVG, such as a chart, which is not escaped."""
    from markupsafe import Markup

    return None if text is None else Markup(text)


def _printable(value: object) -> object:
    """Text without characters that turn the direction of writing, with code between backticks; HTML does not change."""
    if type(value) is not str:
        return value
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable(value)))))
