// An image as OpenCV has it: rows of pixels of three bytes, blue, green and red.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace agent {

// More pixels than this are no image (edgedeploy/vision/__init__.py).
inline constexpr int64_t kMaximumPixels = int64_t{1} << 27;

// Failure(kInput) about `what` if a side is not positive, or there are too many pixels.
void RequireSize(int64_t height, int64_t width, const std::string& what);

// Pixels of its own, or borrowed ones of the caller's, which stay where they are as long as the image is used.
class Image {
 public:
  // Black. Failure(kInput) as of RequireSize.
  Image(int height, int width);
  // Borrowed; `stride` bytes lie between the beginnings of two rows. Failure(kInput) as above, or if rows overlap.
  Image(const uint8_t* pixels, int height, int width, size_t stride);
  // Those that own pixels are moved, never copied.
  Image(Image&&) = default;
  Image& operator=(Image&&) = default;

  int height() const { return height_; }
  int width() const { return width_; }
  size_t stride() const { return stride_; }
  const uint8_t* Row(int y) const { return pixels_ + static_cast<size_t>(y) * stride_; }
  // Of pixels of its own.
  uint8_t* MutableRow(int y) { return own_.data() + static_cast<size_t>(y) * stride_; }

 private:
  std::vector<uint8_t> own_;
  const uint8_t* pixels_;
  int height_;
  int width_;
  size_t stride_;
};

}  // namespace agent
