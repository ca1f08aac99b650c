"""Networks of edgedeploy in Python, on a board or anywhere else: libedgedeploy with numpy's arrays.

This file is the whole Python package `edgedeploy_runtime`, whose wheels contain the library. It needs Python 3.9 and
numpy, and nothing else of edgedeploy.
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

# Called for a new release with its folder, and why it cannot be used, or None if it is in use now.
Switched = Callable[[str, Optional[str]], object]  # noqa: UP045  # evaluated, by Python 3.9 too


class NetworkError(Exception):
    """An error; `code` is from edgedeploy.h: 1 other, 2 misused, 7 input, 8 package, 21 device, 70 internal."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Tensor:
    """An input or output.

    Attributes:
        shape: empty for a scalar.
        layout: `NCHW` or `NHWC` if the shape is clearly one of images, else empty.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    layout: str


@dataclass(frozen=True)
class Detection:
    """One thing that a network sees in an image; coordinates are in pixels of the image.

    Attributes:
        label: the class's name, or its number if the package has no names.
        class_id: from 0.
        score: the network's confidence; None if it gives none.
        box: x1, y1, x2, y2; None without a place.
        corners: x and y of the four corners of a rotated box; `box` is around them.
        points: x and y of each landmark.
        point_scores: the confidence for each landmark, or empty.
        depths: of each landmark behind the middle of all, in pixels of the image, or empty.
        mask: the pixels of the image that belong to it, bool, height x width.
        surface: a number for each pixel of the image, such as its depth, float32, height x width.
    """

    label: str
    class_id: int
    score: float | None
    box: tuple[float, ...] | None
    corners: tuple[tuple[float, ...], ...] | None = None
    points: tuple[tuple[float, ...], ...] = ()
    point_scores: tuple[float, ...] = ()
    depths: tuple[float, ...] = ()
    mask: np.ndarray | None = None
    surface: np.ndarray | None = None


# Pixel formats in the order of edgedeploy.h.
_FORMATS = ("BGR", "RGB", "GRAY", "I420", "NV12", "YUYV")


class _Image(ctypes.Structure):
    """`ed_image` of edgedeploy.h."""

    _fields_ = [
        ("pixels", ctypes.c_void_p),
        ("width", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("stride", ctypes.c_size_t),
        ("format", ctypes.c_int32),
    ]


class _Detection(ctypes.Structure):
    """`ed_detection` of edgedeploy.h."""

    _fields_ = [
        ("label", ctypes.c_char_p),
        ("class_id", ctypes.c_int32),
        ("score", ctypes.c_float),
        *((name, ctypes.POINTER(ctypes.c_float)) for name in ("box", "corners", "points", "point_scores", "depths")),
        ("point_count", ctypes.c_size_t),
        ("mask", ctypes.POINTER(ctypes.c_int64)),
        ("mask_count", ctypes.c_size_t),
        ("surface", ctypes.POINTER(ctypes.c_float)),
    ]

    def read(self, size: tuple[int, int]) -> Detection:
        """The detection; `size` is the image's height and width."""
        count = self.point_count
        return Detection(
            self.label.decode(),
            self.class_id,
            None if np.isnan(self.score) else self.score,
            tuple(self.box[:4]) if self.box else None,
            _pairs(self.corners, 4) if self.corners else None,
            _pairs(self.points, count) if self.points else (),
            tuple(self.point_scores[:count]) if self.point_scores else (),
            tuple(self.depths[:count]) if self.depths else (),
            _pixels(self.mask[: self.mask_count], size) if self.mask else None,
            np.ctypeslib.as_array(self.surface, size).copy() if self.surface else None,
        )


def _pairs(values: Any, count: int) -> tuple[tuple[float, ...], ...]:
    return tuple((values[2 * place], values[2 * place + 1]) for place in range(count))


def _pixels(runs: list[int], size: tuple[int, int]) -> np.ndarray:
    """A mask from runs of pixels, column by column, alternately outside and inside."""
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T


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


_Handle, _Pointer, _Size, _Int = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
_Callback = ctypes.CFUNCTYPE(None, _Handle, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)

# The functions of edgedeploy.h: results and arguments.
_CALLS: dict[str, tuple[Any, list[Any]]] = {
    "version": (ctypes.c_char_p, []),
    "error": (ctypes.c_char_p, []),
    "open": (_Int, [ctypes.c_char_p, _Int, ctypes.POINTER(_Handle)]),
    "follow": (_Int, [ctypes.c_char_p, _Int, _Callback, ctypes.c_void_p, ctypes.POINTER(_Handle)]),
    "close": (_Int, [_Handle]),
    "release": (ctypes.c_char_p, [_Handle]),
    "input_count": (_Size, [_Handle]),
    "output_count": (_Size, [_Handle]),
    "describe_input": (_Int, [_Handle, _Size, ctypes.POINTER(_Tensor)]),
    "describe_output": (_Int, [_Handle, _Size, ctypes.POINTER(_Tensor)]),
    "set_input": (_Int, [_Handle, _Size, _Pointer, _Size]),
    "bind_input": (_Int, [_Handle, _Size, _Pointer, _Size]),
    "run": (_Int, [_Handle]),
    "get_output": (_Int, [_Handle, _Size, ctypes.POINTER(_Pointer)]),
    "threads": (_Int, [_Handle]),
    "set_threads": (_Int, [_Handle, _Int]),
    "entry_count": (_Size, [_Handle]),
    "set_entry": (_Int, [_Handle, _Size]),
    "detect": (_Int, [_Handle, _Pointer, _Pointer, _Pointer]),
}


def convert(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """An input's array, contiguous and with the input's dtype.

    Other dtypes are converted within a kind of number (float64 to float32, but not float to integer), and integers only
    if they fit; otherwise ValueError.
    """
    if not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise ValueError(f"input {name!r} has dtype {array.dtype}: the network takes {dtype}")
    converted = np.asarray(array, dtype=dtype, order="C")  # np.ascontiguousarray has no rank 0
    if array.dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"input {name!r} holds values that do not fit {dtype}")
    return converted


@cache
def _loaded(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    for name, (returned, taken) in _CALLS.items():
        call = getattr(library, f"ed_{name}")
        call.restype, call.argtypes = returned, taken
    return library


class Network:
    """An open network: `Network("retinaface")(image)`.

    Several threads can use it; their inferences take turns. Different networks run at the same time.
    """

    def __init__(
        self, release: str | Path, *, threads: int | None = None, follow: bool = False, switched: Switched | None = None
    ) -> None:
        """Open a network, whose inputs are zeros.

        Args:
            release: the folder of a package or a release; or a model's name, for the release in use here.
            threads: how many threads compute; the package's default if None.
            follow: change to each new release in use, between two inferences. `release` is then a model's name, or a
                link to a folder.
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
        """The library's path: next to this file."""
        return Path(__file__).with_name(LIBRARY_NAME)

    @staticmethod
    def _place(release: str | Path, *, follow: bool) -> str:
        """The library's form of a release: a path has a slash."""
        return f"./{release}" if isinstance(release, Path) and "/" not in str(release) else str(release)

    @staticmethod
    def _error(code: int, text: str) -> Exception:
        """The exception for a failed call."""
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
        """The number of threads. Networks with the same library file share them."""
        return int(self._library.ed_threads(self._handle))

    @threads.setter
    def threads(self, count: int) -> None:
        self._check(self._library.ed_set_threads(self._handle, count))

    @property
    def entries(self) -> int:
        """The number of input shapes for which the package was built."""
        return int(self._library.ed_entry_count(self._handle))

    def set_entry(self, entry: int) -> None:
        """Switch to another of these shapes; the first is 0."""
        self._check(self._library.ed_set_entry(self._handle, entry))

    def __call__(self, *arrays: Any) -> dict[str, np.ndarray]:
        """One inference on arrays in the order of the inputs; the outputs by name."""
        names = [spec.name for spec in self.inputs]
        if len(arrays) != len(names):
            raise self._error(7, f"{len(arrays)} arrays were given: the network's inputs are {', '.join(names)}")
        return self.run(dict(zip(names, arrays)))  # noqa: B905  # Python 3.9

    def run(self, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """One inference on arrays by input name; the outputs by name. Missing inputs keep their values.

        Arrays have the shape of their inputs, and a dtype of the same kind of number.

        Raises:
            NetworkError: an array does not fit its input, or the inference fails.
        """
        with self._lock:  # other threads must not set inputs or run in between
            places = {spec.name: (place, spec) for place, spec in enumerate(self.inputs)}
            for name, value in tensors.items():
                if name not in places:
                    raise self._error(7, f"unknown input {name!r}: the network's inputs are {', '.join(places)}")
                place, spec = places[name]
                array = np.asarray(value)
                if array.shape != spec.shape:
                    raise self._error(7, f"input {name!r} has shape {array.shape}: the network takes {spec.shape}")
                try:
                    array = convert(name, array, spec.dtype)
                except ValueError as error:
                    raise self._error(7, str(error)) from error
                self._check(self._library.ed_set_input(self._handle, place, array.ctypes.data, array.nbytes))
            self._check_turn(self._library.ed_run(self._handle))
            return {spec.name: self._output(place, spec) for place, spec in enumerate(self.outputs)}

    def detect(self, image: Any, pixel_format: str | None = None) -> list[Detection]:
        """One inference on an image: what the network sees, best first, decoded as in the package's demo.

        Args:
            image: uint8, height x width x 3 in OpenCV's order B, G, R, or height x width of grey levels; or as
                `pixel_format` states.
            pixel_format: `BGR`, `RGB` or `GRAY`; or formats of cameras as in OpenCV: `I420` and `NV12`, 3/2 height x
                width, and `YUYV`, height x width x 2.

        Raises:
            NetworkError: the array is not such an image, the package does not state how its network is used in a form
                that this version of the library knows, or the inference fails.
        """
        array = np.asarray(image)
        kind = pixel_format or ("GRAY" if array.ndim == 2 else "BGR")
        channels = {"BGR": 3, "RGB": 3, "YUYV": 2}.get(kind)
        shape = array.shape[:2] if channels is None else (*array.shape[:2], channels)
        if kind not in _FORMATS or array.dtype != np.uint8 or array.ndim < 2 or array.shape != shape:
            raise self._error(
                7, f"an array {array.shape} of {array.dtype} is not an image in {kind}: {', '.join(_FORMATS)}"
            )
        height, width = shape[:2]
        planes = kind in ("I420", "NV12")
        if planes and height % 3:
            raise self._error(7, f"{kind} cannot have {height} rows")
        row = width * (channels or 1)
        if array.size and (array.strides[0] < row or not array[0].flags.c_contiguous):
            array = np.ascontiguousarray(array)  # rows may have gaps between them, pixels may not
        size = (height * 2 // 3 if planes else height), width
        described = _Image(array.ctypes.data, width, size[0], array.strides[0], _FORMATS.index(kind))
        found, count = ctypes.POINTER(_Detection)(), _Size()
        with self._lock:  # the library owns the results until the next inference
            places = ctypes.byref(described), ctypes.byref(found), ctypes.byref(count)
            self._check_turn(self._library.ed_detect(self._handle, *places))
            return [found[place].read(size) for place in range(count.value)]

    def close(self) -> None:
        """Close the network and free its memory; it cannot be used afterwards."""
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

    def _output(self, place: int, spec: Tensor) -> np.ndarray:
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
        """The library's callback for a new release; `run` raises its exceptions."""
        try:
            if self._switched is not None:
                self._switched(release.decode(), None if error is None else error.decode(errors="replace"))
        except BaseException as failure:
            self._failed_in_callback = failure

    def _check_turn(self, status: int) -> None:
        """Raise the error of an inference, or of the callback during it."""
        failed, self._failed_in_callback = self._failed_in_callback, None
        if failed is not None:
            raise failed
        self._check(status)

    def _check(self, status: int) -> None:
        if status != 0:
            raise self._error(status, self._library.ed_error().decode(errors="replace"))
