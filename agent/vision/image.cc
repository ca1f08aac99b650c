#include "vision/image.h"

#include "failure.h"

namespace agent {

constexpr size_t kPixel = 3;

void RequireSize(int64_t height, int64_t width, const std::string& what) {
  if (height > 0 && width > 0 && height <= kMaximumPixels / width) return;
  throw Failure(Code::kInput, what + " of " + std::to_string(width) + " x " + std::to_string(height) + " pixels",
                "both sides are above zero, and there are at most " + std::to_string(kMaximumPixels) + " pixels");
}

Image::Image(int height, int width) : height_(height), width_(width) {
  RequireSize(height, width, "an image");
  stride_ = kPixel * static_cast<size_t>(width);
  own_.resize(stride_ * static_cast<size_t>(height));
  pixels_ = own_.data();
}

Image::Image(const uint8_t* pixels, int height, int width, size_t stride)
    : pixels_(pixels), height_(height), width_(width), stride_(stride) {
  RequireSize(height, width, "an image");
  if (!pixels) throw Failure(Code::kUsage, "the pixels of an image are null");
  const size_t least = kPixel * static_cast<size_t>(width);
  if (stride < least) {
    throw Failure(Code::kInput, "rows of " + std::to_string(width) + " pixels need " + std::to_string(least) + " bytes",
                  "the image has " + std::to_string(stride) + " for each");
  }
}

}  // namespace agent
