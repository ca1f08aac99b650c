"""The errors a user can cause: what happened, why, and what to try.

Each class has its own exit code. The codes are part of the command line's interface, are listed in
`docs/exit-codes.md`, and never change their meaning.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any, ClassVar


class EdgedeployError(Exception):
    """Root of all errors that are reported as a message instead of a traceback.

    It says what happened, one sentence without a full stop, why, if known, and hints: things to try, each an imperative
    sentence. All of them name options of the command line; `str(error)` has the Python API's keywords instead.
    """

    exit_code: ClassVar[int] = 1
    # Whether something is missing here, such as a download: one of several networks is then left out.
    unavailable: ClassVar[bool] = False

    def __init_subclass__(cls, exit_code: int | None = None, unavailable: bool = False) -> None:
        """Without an exit code, a class has that of its base."""
        if exit_code is not None:
            cls.exit_code = exit_code
        cls.unavailable = cls.unavailable or unavailable

    def __init__(self, what: str, *, why: str | None = None, hints: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hints = tuple(hints)

    @property
    def state(self) -> str:
        """The state of one of several networks: `unavailable` or `failed`."""
        return "unavailable" if self.unavailable else "failed"

    def to_dict(self) -> dict[str, Any]:
        """The JSON entry of a network that failed, in commands with several networks."""
        return {"state": self.state, "error": self.cause, "try": list(self.hints), "exit_code": self.exit_code}

    @property
    def cause(self) -> str:
        """What happened and why, without hints: for messages that quote it."""
        return f"{self.what}: {self.why}" if self.why else self.what

    def __str__(self) -> str:
        from edgedeploy.keywords import in_python

        # Several lines are the output of a compiler or a driver.
        why = in_python(self.why) if self.why and "\n" not in self.why else self.why
        what = in_python(self.what)
        return "\n".join([f"{what}: {why}" if why else what, *(f"  try: {in_python(hint)}" for hint in self.hints)])


class ConfigurationError(EdgedeployError, exit_code=3):
    """A board, toolchain, demo or zoo file is invalid; or an installed pass cannot be used."""


class UnknownNameError(EdgedeployError, exit_code=4):
    """A board, model, demo, toolchain, label set, engine or pass that does not exist was named."""


class ModelError(EdgedeployError, exit_code=5):
    """A network's file cannot be read or imported."""


class MissingWeightsError(ModelError, unavailable=True):
    """The zoo describes a network without having its weights."""


class CompileError(EdgedeployError, exit_code=6):
    """A network was imported but could not be compiled for the board."""


class NumericalError(CompileError):
    """The compiled network's outputs differ too much from the reference's."""


class InputError(EdgedeployError, exit_code=7):
    """An image, an array or a value given on the command line cannot be used."""


class OpenShapeError(InputError):
    """A network's file leaves the shape of `input` open, and none was given."""

    def __init__(self, what: str, *, input: str = "", why: str | None = None, hints: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, hints=hints)
        self.input = input


class PackageError(EdgedeployError, exit_code=8):
    """A package is damaged, hostile, or not for this machine."""


class DownloadError(EdgedeployError, exit_code=9, unavailable=True):
    """A file of the zoo could not be downloaded, or is not the file that the zoo describes."""


class OutputError(EdgedeployError, exit_code=10):
    """A result could not be written."""


class ToolchainError(EdgedeployError, exit_code=11):
    """A compiler or linker is missing, or failed."""


class ReaderGoneError(OutputError, exit_code=141):
    """The reader of standard output closed it: the command ends without a message."""


class UnsupportedError(EdgedeployError, exit_code=12):
    """A meaningful request is not supported by this version."""


class BoardConnectionError(EdgedeployError, exit_code=13):
    """A board cannot be reached over SSH, refuses the login, or the connection broke."""


class LoginError(BoardConnectionError):
    """A board was reached and shows a trusted host key, but refuses the login."""


class HostKeyError(BoardConnectionError, exit_code=14):
    """A board shows an untrusted host key: changed, revoked, without a certificate, or unknown."""


class UnsuitableBoardError(EdgedeployError, exit_code=15):
    """A package needs something that the board lacks; nothing was sent."""


class ReleaseError(EdgedeployError, exit_code=16):
    """A release is missing or could not be put on a board; the one in use stays unless the message says otherwise."""


class InaccurateReleaseError(EdgedeployError, exit_code=25):
    """A quantised network lost more accuracy than allowed, or its loss is not recorded; nothing was sent."""


class UnhealthyReleaseError(EdgedeployError, exit_code=23):
    """A release was switched to and failed its checks; the board went back to the previous one."""


class BoardBusyError(EdgedeployError, exit_code=17):
    """Somebody else is changing the releases of a board."""


class VirtualBoardError(EdgedeployError, exit_code=18):
    """A virtual board is not supported by this machine, or does not start."""


class RpcError(EdgedeployError, exit_code=19):
    """A tracker or a server of TVM's RPC cannot be started or reached, or has no device for a key."""


class NoTrackerError(RpcError):
    """No tracker answers at an address, maybe only for a moment."""


class DeviceLostError(RpcError):
    """A device went away: the batch is to be measured again.

    `suspect` is the index of the candidate that ran at that moment, if any: one that appears twice may be the cause.
    """

    def __init__(self, what: str, *, why: str | None = None, suspect: int | None = None) -> None:
        hints = ["check the board's power and network, and repeat the command: measurements so far are kept"]
        super().__init__(what, why=why, hints=hints)
        self.suspect = suspect


class RecordsError(EdgedeployError, exit_code=20):
    """Tuning records are damaged, hostile, or of another board."""


class DeviceError(EdgedeployError, exit_code=21):
    """A device besides the CPU, or its driver, failed.

    The runtimes for devices raise these through TVM, which knows them by their `kind`, with one text for each: its
    first line is what happened, the others are the cause.
    """

    kind: ClassVar[str] = "DeviceError"
    try_this: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def kinds(cls) -> dict[str, type[DeviceError]]:
        """This error and its subclasses, by their kind."""
        found: dict[str, type[DeviceError]] = {cls.kind: cls}
        for each in cls.__subclasses__():
            found |= each.kinds()
        return found

    def __init__(self, what: str, *, why: str | None = None, hints: Sequence[str] = ()) -> None:
        first, _, rest = what.partition("\n")
        super().__init__(first, why=why or rest or None, hints=hints or self.try_this)


class OpenCLError(DeviceError):
    """An OpenCL device, or its driver, failed."""

    kind = "OpenCLError"


class NoOpenCLError(OpenCLError):
    """OpenCL, its driver or a device is missing, or no device has that name."""

    kind = "OpenCLUnavailable"
    try_this = (
        "install the driver of the device; on Debian: apt install intel-opencl-icd, or mesa-opencl-icd",
        "apt install pocl-opencl-icd, which has the CPU as its device",
    )


class KernelBuildError(OpenCLError):
    """The driver's compiler refuses a network's kernels; its log is shown."""

    kind = "OpenCLBuildError"


class WorkGroupError(OpenCLError):
    """A kernel needs more work-items, or local memory, in one work-group than the device has."""

    kind = "OpenCLLaunchError"
    try_this = ("build the network for this kind of device: `kind` of the device in the board's profile",)


class DeviceMemoryError(OpenCLError):
    """The memory of an OpenCL device is exhausted, or it cannot allocate a piece of that size."""

    kind = "OpenCLMemoryError"
    try_this = ("run fewer networks at a time on the device, or one with smaller inputs",)


class OpenCLDeviceLostError(OpenCLError):
    """An OpenCL device failed during work, went away, or does not answer in time."""

    kind = "OpenCLDeviceLost"
    try_this = ("start the program again; the kernel's log (dmesg) may show why",)


class NotReadyError(EdgedeployError, exit_code=22):
    """`edgedeploy doctor` found a fault that prevents building, pushing or running networks."""


class ServiceError(EdgedeployError, exit_code=26):
    """A service cannot be installed on a board, is missing, or does not start."""


class NotInstalledError(EdgedeployError, exit_code=27, unavailable=True):
    """Python packages of one of edgedeploy's extras are needed and not installed."""


class SlowerError(EdgedeployError, exit_code=28):
    """A measurement is slower than `edgedeploy bench compare --fail-above` allows."""


class MemoryExhaustedError(EdgedeployError, exit_code=24):
    """There is not enough memory, or the process is limited to too little of it."""


class InternalError(EdgedeployError, exit_code=70):
    """An error inside edgedeploy."""

    @classmethod
    def of(cls, error: BaseException) -> InternalError:
        """The report of an unexpected error."""
        return cls(
            f"internal error: {type(error).__name__}",
            why=" ".join(str(error).split())[:300] or None,
            hints=["the same command with `edgedeploy -vv ...` for a traceback, and report it"],
        )


def cause_of(error: BaseException) -> str:
    """An error's text without hints."""
    return error.cause if isinstance(error, EdgedeployError) else str(error)


def signal_of(code: int) -> str | None:
    """The signal that ended a process, such as SIGSEGV, or None.

    Its exit code is as in `subprocess`, or as in a shell: 128 plus the number of the signal.
    """
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else None


def ending(code: int) -> str:
    """How a process ended that printed nothing. Argument is `signal_of`'s."""
    name = signal_of(code)
    if name is None:
        return f"it ended with code {code}"
    return f"it was ended by {name}" + (", as happens when memory runs out" if name == "SIGKILL" else "")


def last_line(error: BaseException) -> str:
    """The last line of a library's error: TVM and onnxruntime put the cause there, below their own traces."""
    lines = cause_of(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
