"""A page about tuning records: one file of HTML that needs neither a network nor a script.

`history` orders what the records say, `charts` draws it, `page` gives it to the template `tuning.html`.
"""

from __future__ import annotations

from pathlib import Path

from edgedeploy.files import replacing
from edgedeploy.records.database import read_records
from edgedeploy.report import require_report
from edgedeploy.tuning.report.page import page


def write_report(folder: Path, output: Path) -> Path:
    """Write the page of a folder of records to an HTML file; a run may be adding records meanwhile."""
    require_report()
    text = page(folder, read_records(folder))
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return output
