"""`edgedeploy package`: show and verify packages."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from typer import Argument

from edgedeploy.cli.console import foreign, print_result, print_text
from edgedeploy.cli.groups import Commands

if TYPE_CHECKING:
    from rich.text import Text

    from edgedeploy.model.heads import Head
    from edgedeploy.model.tensors import TensorSpec
    from edgedeploy.package.manifest import Manifest

app = Commands(help="Show and verify packages.", no_args_is_help=True)


@app.command()
def show(package: Path = Argument(..., metavar="PACKAGE", help="The archive.")) -> None:
    """Show a package's contents: the network, the target and requirements of its code, memory, files.

    With --json, its manifest. Only the manifest is read; `verify` checks the files against it.

    Example: edgedeploy package show dist/rpi4/digits.tar.gz
    """
    from rich.table import Table

    from edgedeploy.package.archive import read_manifest

    manifest = read_manifest(package)
    needs = [f"{manifest.abi.elf_class}-bit {manifest.abi.machine}", f"CPU {manifest.abi.cpu}", *manifest.abi.features]
    needs += [f"{manifest.abi.float_abi}-float ABI"] * (manifest.abi.float_abi is not None)
    needs += [f"glibc {manifest.abi.glibc}"] * (manifest.abi.glibc is not None)
    test = manifest.selftest
    rows: dict[str, str | Text] = {
        "model": manifest.model,
        "imported from": f"a file of SHA-256 {manifest.model_sha256}",
        "board": manifest.board,
        "needs": ", ".join([*needs, *manifest.abi.libraries]),
        "linked by": manifest.linker,
        "built with": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
        "tuned": f"with records of SHA-256 {manifest.tuning_records}" if manifest.tuning_records else "no",
        "without passes": foreign(*manifest.disabled_passes),
        "set": foreign(*(f"{name} = {value}" for name, value in manifest.set_inputs.items())),
        **_entries(manifest),
        "heads": foreign(*map(_head, manifest.heads)),
        "metadata": foreign(*(f"{key}  {shorten(value, 90)}" for key, value in manifest.metadata.items())),
        "quantised": foreign(*(manifest.quantisation.lines() if manifest.quantisation else [])),
        "half precision": foreign("; ".join(manifest.half.lines()) if manifest.half else ""),
        "use": foreign(*(manifest.usage.lines() if manifest.usage else [])),
        "threads": str(manifest.threads),
        "memory": manifest.memory.line(),
        "self-test": foreign(
            *(
                f"outputs of {test.reference} for {case.name} inputs, within {case.usual:g} of the largest and "
                f"{case.absolute:g}"
                for case in test.cases
            ),
            *manifest.raised_tolerances(),
        ),
        "checked": manifest.checked.line(),
        "files": foreign(*(f"{name}  {member.size:,} bytes" for name, member in manifest.files.items())),
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    print_result(manifest.model_dump(mode="json", by_alias=True), table)


@app.command()
def verify(packages: list[Path] = Argument(..., metavar="PACKAGE", help="The archives.")) -> None:
    """Check that packages are intact: every file that the manifest lists, with its SHA-256, and nothing else.

    A network's end that edgedeploy itself computes (docs/tails.md) is checked as well.

    Nothing is unpacked or run. The command ends at the first damaged package.

    Example: edgedeploy package verify dist/rpi4/digits.tar.gz
    """
    from edgedeploy.package.archive import read_package, read_tails

    found = []
    for path in packages:
        manifest, _ = read_package(path, keep=())
        read_tails(path)
        size = sum(member.size for member in manifest.files.values())
        found.append({"package": str(path), "model": manifest.model, "board": manifest.board, "bytes": size})
        files = f"{len(manifest.files)} files, {size:,} bytes"
        print_text(f"{path} is sound: {manifest.model} for {manifest.board}, {files}")
    print_result(found)


def _entries(manifest: Manifest) -> dict[str, str | Text]:
    rows: dict[str, str | Text] = {}
    for place, entry in enumerate(manifest.entries, 1):
        which = f", shape {place}" if manifest.further else ""
        rows[f"inputs{which}"] = foreign(*map(_tensor, entry.inputs))
        rows[f"outputs{which}"] = foreign(*map(_tensor, entry.results))
        rows[f"compiled up to{which}"] = foreign(*map(_tensor, entry.outputs if entry.tail else []))
    return rows


def _tensor(tensor: TensorSpec) -> str:
    sizes = ", ".join("?" if size < 0 else str(size) for size in tensor.shape)
    return f"{tensor.name}  {tensor.dtype} [{sizes}]"


def _head(head: Head) -> str:
    classes = "" if head.classes is None else f" of {head.classes} classes"
    return f"{head.output}  {head.kind}, {len(head.anchors)} anchors{classes}"
