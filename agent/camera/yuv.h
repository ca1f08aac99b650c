// Images of cameras in luminance and colour differences, as pixels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vision/image.h"

namespace agent {

// In ITU-R BT.601's limited range (luminance 16 to 235), with the arithmetic of OpenCV's cvtColor. Both sides are even.
enum class YuvLayout {
  kYuyv,  // two pixels in four bytes: Y U Y V
  kNv12,  // all Y, then for each four pixels U V
  kI420,  // all Y, then all U, then all V, one for each four pixels
};

// How many bytes an image has whose rows of Y take `stride` bytes.
size_t YuvBytes(YuvLayout layout, int height, size_t stride);

// `data` has YuvBytes. Failure(kInput) for sides that are not even.
Image ImageOfYuv(YuvLayout layout, const uint8_t* data, int height, int width, size_t stride);

}  // namespace agent
