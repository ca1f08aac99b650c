#include "camera/yuv.h"

#include <algorithm>

#include "failure.h"

namespace agent {
namespace {

// OpenCV's coefficients in fixed point of 20 bits (modules/imgproc, color_yuv): of Y less 16, and of U and V less 128.
constexpr int kBits = 20;
constexpr int kY = 1220542;
constexpr int kUtoB = 2116026;
constexpr int kUtoG = -409993;
constexpr int kVtoG = -852492;
constexpr int kVtoR = 1673527;

uint8_t Level(int value) { return static_cast<uint8_t>(std::clamp(value >> kBits, 0, 255)); }

// What two colour differences add to blue, green and red.
struct Colour {
  Colour(int u, int v) {
    constexpr int kHalf = 1 << (kBits - 1);
    blue = kHalf + kUtoB * (u - 128);
    green = kHalf + kUtoG * (u - 128) + kVtoG * (v - 128);
    red = kHalf + kVtoR * (v - 128);
  }
  void Write(int y, uint8_t* pixel) const {
    const int light = std::max(0, y - 16) * kY;
    pixel[0] = Level(light + blue);
    pixel[1] = Level(light + green);
    pixel[2] = Level(light + red);
  }
  int blue;
  int green;
  int red;
};

}  // namespace

size_t YuvBytes(YuvLayout layout, int height, size_t stride) {
  const size_t luminance = stride * static_cast<size_t>(height);
  return layout == YuvLayout::kYuyv ? luminance : luminance + luminance / 2;
}

Image ImageOfYuv(YuvLayout layout, const uint8_t* data, int height, int width, size_t stride) {
  if (width % 2 != 0 || height % 2 != 0) {
    throw Failure(Code::kInput, "the camera's images have odd sides", "ask for another --size");
  }
  Image image(height, width);
  const size_t luminance = stride * static_cast<size_t>(height);
  for (int row = 0; row < height; ++row) {
    const auto y = static_cast<size_t>(row);
    const uint8_t* light = data + y * stride;
    uint8_t* pixel = image.MutableRow(row);
    if (layout == YuvLayout::kYuyv) {
      for (int x = 0; x < width; x += 2, light += 4, pixel += 6) {
        const Colour colour(light[1], light[3]);
        colour.Write(light[0], pixel);
        colour.Write(light[2], pixel + 3);
      }
      continue;
    }
    const bool joined = layout == YuvLayout::kNv12;
    const uint8_t* u = data + luminance + y / 2 * (joined ? stride : stride / 2);
    const uint8_t* v = joined ? u + 1 : u + luminance / 4;
    const int step = joined ? 2 : 1;
    for (int x = 0; x < width; x += 2, light += 2, u += step, v += step, pixel += 6) {
      const Colour colour(*u, *v);
      colour.Write(light[0], pixel);
      colour.Write(light[1], pixel + 3);
    }
  }
  return image;
}

}  // namespace agent
