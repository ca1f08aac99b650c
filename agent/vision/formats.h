// Frames of cameras and of other programs as images: what cv2.cvtColor makes of them.
#pragma once

#include <optional>
#include <string>

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

// The format that manifests call so (edgedeploy/package/usage.py); nothing for one that is not known here.
std::optional<PixelFormat> PixelFormatOf(const std::string& name);

// A frame as it lies in memory.
struct CameraFrame {
  const uint8_t* pixels;
  int height;
  int width;
  size_t stride;
  PixelFormat format;
};

// An image as a frame, which borrows its pixels.
inline CameraFrame FrameOf(const Image& image) {
  return {image.Row(0), image.height(), image.width(), image.stride(), PixelFormat::kBgr};
}
CameraFrame FrameOf(Image&& image) = delete;

// Bytes of a frame, whose pixels may be null. `stride` bytes lie between the beginnings of two rows, of I420's planes
// of colour half as many; 0 if rows lie densely. Failure(kInput) for a size that the format does not have.
size_t FrameBytes(const CameraFrame& frame);

// A frame as an image, which borrows the pixels of one that is B G R.
Image FromFrame(const CameraFrame& frame);

// A frame as it is, with rows that lie densely; `memory` is as large as FrameBytes says of such.
void CopyFrame(const CameraFrame& frame, void* memory);

}  // namespace agent
