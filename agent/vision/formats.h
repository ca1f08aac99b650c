// Frames of cameras and of other programs as images: what cv2.cvtColor makes of them.
#pragma once

#include "vision/image.h"

namespace agent {

enum class PixelFormat {
  kBgr,
  kRgb,
  kGrey,
  kI420,  // a plane of brightness, and of each colour one of a quarter of its size
  kNv12,  // a plane of brightness, and one of both colours by turns
  kYuyv,  // brightness and colours of two pixels in four bytes
};

// Bytes of a frame. `stride` bytes lie between the beginnings of two rows, of I420's planes of colour half as many; 0 if
// rows lie densely. Failure(kInput) for a size that the format does not have.
size_t FrameBytes(int height, int width, size_t stride, PixelFormat format);

// A frame as an image, which borrows the pixels of one that is B G R.
Image FromFrame(const uint8_t* pixels, int height, int width, size_t stride, PixelFormat format);

}  // namespace agent
