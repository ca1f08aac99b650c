// Resizing as other programs do it, to the same levels: edgedeploy/vision/frames.py and preprocess.py say whose.
#pragma once

#include <vector>

#include "vision/frame.h"
#include "vision/image.h"

namespace agent {

// As Tengine's examples stretch images: bilinear in 11-bit fixed point, rounded down at each step.
Image Stretched(const Image& image, Size size);

// OpenCV's INTER_LINEAR.
Image Interpolated(const Image& image, Size size);

// OpenCV's INTER_AREA of an image that shrinks: means over the pixels that fall together.
Image Averaged(const Image& image, Size size);

// A part of an image that is resized to `whole` by Pillow's bilinear filter, along x and then along y: of `size`, from
// the pixel (left, top) on.
Image Filtered(const Image& image, Size whole, int left, int top, Size size);

// All of an image as it lies in a network's input of a size, on black: as MediaPipe's ImageToTensorCalculator has it,
// with OpenCV's bilinear interpolation, which takes places in 32nds of a pixel.
Image Projected(const Image& image, Size size, const Frame& frame);

// OpenCV's INTER_LINEAR of single numbers, rows x columns.
std::vector<float> Interpolated(const std::vector<float>& values, Size from, Size to);

// OpenCV's INTER_NEAREST of them.
std::vector<float> Nearest(const std::vector<float>& values, Size from, Size to);

}  // namespace agent
