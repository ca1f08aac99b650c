"""What the reader of archives says of files, for tests under any Python: with nothing but the standard library.

    python -m support.archive_verdicts READER ARCHIVE...

prints, as JSON, for each archive the names and sizes of its files or why it is refused, and what memory all took.
"""

import importlib.util
import json
import sys
from pathlib import Path

from support.archives import peak_bytes


def main(reader: str, *archives: str) -> None:
    spec = importlib.util.spec_from_file_location("reader", reader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reader"] = module
    spec.loader.exec_module(module)
    before, verdicts = peak_bytes(), {}
    for path in archives:
        try:
            with module.opened_archive(Path(path)) as entries:
                verdict = [[entry.name, sum(map(len, entry.pieces()))] for entry in entries]
        except module.DamagedArchiveError as error:
            verdict = str(error)
        verdicts[Path(path).name] = verdict
    json.dump({"verdicts": verdicts, "memory": peak_bytes() - before}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
