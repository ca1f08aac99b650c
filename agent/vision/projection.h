// Images in a network's input where neither sizes nor places are rounded: edgedeploy/vision/geometry.py.
#pragma once

#include "vision/frame.h"
#include "vision/image.h"

namespace agent {

// All of an image as it lies in a network's input of a size, on black: as MediaPipe's ImageToTensorCalculator has it,
// with OpenCV's bilinear interpolation, which takes places in 32nds of a pixel.
Image Projected(const Image& image, Size size, const Frame& frame);

}  // namespace agent
