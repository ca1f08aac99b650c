#include "vision/image.h"

#include <string>

#include "failure.h"

namespace agent {
namespace {

constexpr size_t kPixel = 3;

void RequireSize(int height, int width) {
  if (height > 0 && width > 0 && static_cast<int64_t>(height) * width <= kMaximumPixels) return;
  throw Failure(Code::kInput, "an image of " + std::to_string(width) + " x " + std::to_string(height) + " pixels",
                "both sides are above zero, and there are at most " + std::to_string(kMaximumPixels) + " pixels");
}

}  // namespace

Image::Image(int height, int width) : height_(height), width_(width) {
  RequireSize(height, width);
  stride_ = kPixel * static_cast<size_t>(width);
  own_.resize(stride_ * static_cast<size_t>(height));
  pixels_ = own_.data();
}

Image::Image(const uint8_t* pixels, int height, int width, size_t stride)
    : pixels_(pixels), height_(height), width_(width), stride_(stride) {
  RequireSize(height, width);
  if (!pixels) throw Failure(Code::kUsage, "the pixels of an image are null");
  if (stride < kPixel * static_cast<size_t>(width)) {
    throw Failure(Code::kInput,
                  "rows of " + std::to_string(width) + " pixels need " +
                      std::to_string(kPixel * static_cast<size_t>(width)) + " bytes",
                  "the image has " + std::to_string(stride) + " for each");
  }
}

}  // namespace agent
