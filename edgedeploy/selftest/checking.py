"""Runs a package's self-test before the package is written."""

from __future__ import annotations

from collections.abc import Mapping

from edgedeploy.errors import NumericalError, PackageError
from edgedeploy.package.manifest import Manifest
from edgedeploy.selftest.comparison import fractions
from edgedeploy.selftest.recording import Recorded


def check(manifest: Manifest, library: bytes, cases: Mapping[str, Recorded]) -> float:
    """Run a package's self-test in this process.

    Returns:
        The largest difference from the reference, as a fraction of the tolerance.

    Raises:
        NumericalError: it exceeds the tolerance.
    """
    from edgedeploy.runtime.session import Session

    what = f"the code for {manifest.model} gives other outputs than {manifest.selftest.reference}"
    session = Session(manifest, library)
    worst = 0.0
    for case in manifest.selftest.cases:
        each = cases[case.name]
        try:
            found = session.run(each.inputs)
        except PackageError as error:
            raise NumericalError(what, why=f"{error.what}: {error.why}") from error
        for name, fraction in fractions(found, each.outputs, case).items():
            if fraction > 1:
                raise NumericalError(
                    what,
                    why=f"output {name!r} differs by {fraction:.3g} times what is allowed "
                    f"({case.relative:g} of its largest value), for {case.name} inputs",
                )
            worst = max(worst, fraction)
    return worst
