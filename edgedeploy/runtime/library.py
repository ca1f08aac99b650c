"""Networks of edgedeploy in Python, on a board or anywhere else: what libedgedeploy does, with numpy's arrays.

This file is also the whole of the Python package `edgedeploy_runtime`, whose wheels lie beside the library. It needs
Python 3.9 and numpy, and nothing else of edgedeploy.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Optional

import numpy as np

LIBRARY_NAME = "libedgedeploy.so.1"

# What is told of a new release: its folder, and why it cannot be used, or None if it is in use now.
Switched = Callable[[str, Optional[str]], object]  # noqa: UP045  # evaluated, by Python 3.9 too


class NetworkError(Exception):
    """What went wrong.

    Attributes:
        code: one of edgedeploy.h's: 1 other, 2 misused, 7 input, 8 package, 21 device, 70 internal.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Tensor:
    """An input or output.

    Attributes:
        name: of the network's.
        dtype: of its values.
        shape: empty for a scalar.
        layout: `NCHW` or `NHWC` if the shape is that of images and leaves no doubt, else empty.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    layout: str


class _Tensor(ctypes.Structure):
    """`ed_tensor` of edgedeploy.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("layout", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
    ]


_Handle, _Pointer, _Size = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
_Callback = ctypes.CFUNCTYPE(None, _Handle, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)

# The calls of edgedeploy.h: what they return, and take.
_CALLS: dict[str, tuple[Any, list[Any]]] = {
    "version": (ctypes.c_char_p, []),
    "error": (ctypes.c_char_p, []),
    "open": (ctypes.c_int32, [ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(_Handle)]),
    "follow": (
        ctypes.c_int32,
        [ctypes.c_char_p, ctypes.c_int32, _Callback, ctypes.c_void_p, ctypes.POINTER(_Handle)],
    ),
    "close": (ctypes.c_int32, [_Handle]),
    "release": (ctypes.c_char_p, [_Handle]),
    "input_count": (_Size, [_Handle]),
    "output_count": (_Size, [_Handle]),
    "describe_input": (ctypes.c_int32, [_Handle, _Size, ctypes.POINTER(_Tensor)]),
    "describe_output": (ctypes.c_int32, [_Handle, _Size, ctypes.POINTER(_Tensor)]),
    "set_input": (ctypes.c_int32, [_Handle, _Size, _Pointer, _Size]),
    "bind_input": (ctypes.c_int32, [_Handle, _Size, _Pointer, _Size]),
    "run": (ctypes.c_int32, [_Handle]),
    "get_output": (ctypes.c_int32, [_Handle, _Size, ctypes.POINTER(_Pointer)]),
    "threads": (ctypes.c_int32, [_Handle]),
    "set_threads": (ctypes.c_int32, [_Handle, ctypes.c_int32]),
    "entry_count": (_Size, [_Handle]),
    "set_entry": (ctypes.c_int32, [_Handle, _Size]),
}


@cache
def _loaded(path: Path) -> Any:
    """The library, with the types of its calls."""
    library = ctypes.CDLL(str(path))
    for name, (returned, taken) in _CALLS.items():
        call = getattr(library, f"ed_{name}")
        call.restype, call.argtypes = returned, taken
    return library


class Network:
    """An open network: `Network("retinaface")(image)`.

    It can be used from several threads; their inferences take turns. Different networks run at the same time.
    """

    def __init__(
        self,
        release: str | Path,
        *,
        threads: int | None = None,
        follow: bool = False,
        switched: Switched | None = None,
    ) -> None:
        """Open a network, whose inputs are zeros.

        Args:
            release: the folder of a package or a release; or a model's name, for the release in use here.
            threads: how many threads compute; what the package states by default.
            follow: whether to change to the next release, between two inferences, when that comes into use. `release`
                is then a model's name, or a link to a folder.
            switched: called with the folder of each such release, and why it cannot be used, or None.

        Raises:
            NetworkError: there is no such release, or it cannot be opened here.
        """
        self._lock = threading.RLock()
        self._library = _loaded(self._library_path())
        self._failed_in_callback: BaseException | None = None
        self._switched = switched
        self._tell = _Callback(self._told)  # the library calls it for as long as the network is open
        handle = _Handle()
        self._handle: ctypes.c_void_p | None = handle
        name, count = self._place(release, follow=follow), threads or 0
        if follow:
            self._check(self._library.ed_follow(name.encode(), count, self._tell, None, ctypes.byref(handle)))
        else:
            self._check(self._library.ed_open(name.encode(), count, ctypes.byref(handle)))

    @staticmethod
    def _library_path() -> Path:
        """Where the library is: beside this file."""
        return Path(__file__).with_name(LIBRARY_NAME)

    @staticmethod
    def _place(release: str | Path, *, follow: bool) -> str:
        """What the library calls a release: a path has a slash in it."""
        return f"./{release}" if isinstance(release, Path) and "/" not in str(release) else str(release)

    @staticmethod
    def _error(code: int, text: str) -> Exception:
        """The exception for a call that failed."""
        return NetworkError(code, text)

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs, in the network's order."""
        return self._described("input")

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs, in the network's order."""
        return self._described("output")

    @property
    def release(self) -> str:
        """The folder of the release in use."""
        found = self._library.ed_release(self._handle)
        return str(found.decode()) if found is not None else ""

    @property
    def threads(self) -> int:
        """How many threads compute. Networks of one library file share them."""
        return int(self._library.ed_threads(self._handle))

    @threads.setter
    def threads(self, count: int) -> None:
        self._check(self._library.ed_set_threads(self._handle, count))

    @property
    def entries(self) -> int:
        """For how many shapes of its inputs the package was built."""
        return int(self._library.ed_entry_count(self._handle))

    def set_entry(self, entry: int) -> None:
        """Turn to another of these shapes; the first is 0."""
        self._check(self._library.ed_set_entry(self._handle, entry))

    def __call__(self, *arrays: Any) -> dict[str, np.ndarray]:
        """One inference on arrays in the order of the inputs; the outputs by name."""
        names = [spec.name for spec in self.inputs]
        if len(arrays) != len(names):
            raise self._error(7, f"{len(arrays)} arrays were given: the network's inputs are {', '.join(names)}")
        return self.run(dict(zip(names, arrays)))  # noqa: B905  # Python 3.9

    def run(self, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """One inference on arrays by input name; the outputs by name. An input that is not given keeps its values.

        Arrays have the shape of their inputs, and a dtype that converts to theirs without another kind of number.

        Raises:
            NetworkError: an array fits no input, or the inference fails.
        """
        with self._lock:  # nobody else sets inputs, or has outputs computed, in between
            places = {spec.name: (place, spec) for place, spec in enumerate(self.inputs)}
            for name, value in tensors.items():
                if name not in places:
                    raise self._error(7, f"unknown input {name!r}: the network's inputs are {', '.join(places)}")
                place, spec = places[name]
                array = self._fitted(np.asarray(value), spec)
                self._check(self._library.ed_set_input(self._handle, place, array.ctypes.data, array.nbytes))
            status = self._library.ed_run(self._handle)
            failed, self._failed_in_callback = self._failed_in_callback, None
            if failed is not None:
                raise failed
            self._check(status)
            return {spec.name: self._output(place, spec) for place, spec in enumerate(self.outputs)}

    def close(self) -> None:
        """End the network and give back its memory; nothing else can be done with it afterwards."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.ed_close(handle)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _fitted(self, array: np.ndarray, spec: Tensor) -> np.ndarray:
        """An array as its input takes it."""
        if array.shape != spec.shape:
            raise self._error(7, f"input {spec.name!r} has shape {array.shape}: the network takes {spec.shape}")
        if not np.can_cast(array.dtype, spec.dtype, casting="same_kind"):
            raise self._error(7, f"input {spec.name!r} has dtype {array.dtype}: the network takes {spec.dtype}")
        converted = np.asarray(array, dtype=spec.dtype, order="C")
        if array.dtype.kind in "iu" and not np.array_equal(converted, array):
            raise self._error(7, f"input {spec.name!r} holds values that do not fit {spec.dtype}")
        return converted

    def _output(self, place: int, spec: Tensor) -> np.ndarray:
        """A copy of an output, which the next inference leaves alone."""
        values = _Pointer()
        self._check(self._library.ed_get_output(self._handle, place, ctypes.byref(values)))
        size = int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize
        content = ctypes.string_at(values, size) if size else b""
        return np.frombuffer(bytearray(content), spec.dtype).reshape(spec.shape)

    def _described(self, what: str) -> list[Tensor]:
        count, describe = (getattr(self._library, f"ed_{name}") for name in (f"{what}_count", f"describe_{what}"))
        found = []
        with self._lock:
            for place in range(count(self._handle)):
                tensor = _Tensor()
                self._check(describe(self._handle, place, ctypes.byref(tensor)))
                shape = tuple(tensor.shape[: tensor.rank])
                name, dtype, layout = (text.decode() for text in (tensor.name, tensor.dtype, tensor.layout))
                found.append(Tensor(name, np.dtype(dtype), shape, layout))
        return found

    def _told(self, _network: int, release: bytes, error: bytes | None, _context: object) -> None:
        """What the library calls when there is a new release; what fails here is raised by `run`."""
        try:
            if self._switched is not None:
                self._switched(release.decode(), None if error is None else error.decode(errors="replace"))
        except BaseException as failure:
            self._failed_in_callback = failure

    def _check(self, status: int) -> None:
        if status != 0:
            raise self._error(status, self._library.ed_error().decode(errors="replace"))
