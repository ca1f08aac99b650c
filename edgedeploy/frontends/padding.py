"""How much padding windows need, by the rules that formats share; sizes are those of one axis after another."""

from __future__ import annotations

from collections.abc import Sequence


def same_padding(sizes: Sequence[int], extents: Sequence[int], strides: Sequence[int]) -> list[int]:
    """How much padding gives as many windows as size / stride, rounded up: TensorFlow's SAME; negative for gaps.

    Args:
        sizes: of what the windows slide over.
        extents: of the windows, gaps by dilation included.
        strides: of the windows.
    """
    return [
        (size - 1) // stride * stride + extent - size
        for size, extent, stride in zip(sizes, extents, strides, strict=True)
    ]


def halves(totals: Sequence[int], *, lower: bool = False) -> tuple[list[int], list[int]]:
    """Padding before and after, the odd one after unless `lower`; less than none is none."""
    small = [max(total, 0) // 2 for total in totals]
    large = [max(total, 0) - less for total, less in zip(totals, small, strict=True)]
    return (large, small) if lower else (small, large)
