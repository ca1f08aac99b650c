#include "vision/formats.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "failure.h"

namespace agent {
namespace {

// ITU-R BT.601 in fixed point of 20 bits, as OpenCV has it.
constexpr int kBits = 20;
constexpr int kHalf = 1 << (kBits - 1);
constexpr int kBrightness = 1220542;
constexpr int kBlueOfU = 2116026;
constexpr int kGreenOfU = -409993;
constexpr int kGreenOfV = -852492;
constexpr int kRedOfV = 1673527;
constexpr int kBlack = 16;
constexpr int kNoColour = 128;

uint8_t Level(int value) { return static_cast<uint8_t>(std::min(std::max(value >> kBits, 0), 255)); }

void WritePixel(int y, int u, int v, uint8_t* pixel) {
  const int brightness = std::max(0, y - kBlack) * kBrightness;
  u -= kNoColour;
  v -= kNoColour;
  pixel[0] = Level(brightness + kHalf + kBlueOfU * u);
  pixel[1] = Level(brightness + kHalf + kGreenOfV * v + kGreenOfU * u);
  pixel[2] = Level(brightness + kHalf + kRedOfV * v);
}

size_t BytesOfRow(int width, PixelFormat format) {
  const auto pixels = static_cast<size_t>(width);
  switch (format) {
    case PixelFormat::kBgr:
    case PixelFormat::kRgb:
      return 3 * pixels;
    case PixelFormat::kYuyv:
      return 2 * pixels;
    default:
      return pixels;
  }
}

bool HasPlanes(PixelFormat format) { return format == PixelFormat::kI420 || format == PixelFormat::kNv12; }

size_t StrideOf(const CameraFrame& frame) {
  return frame.stride == 0 ? BytesOfRow(frame.width, frame.format) : frame.stride;
}

uint8_t* CopyRows(const uint8_t* rows, size_t count, size_t bytes, size_t stride, uint8_t* out) {
  for (size_t row = 0; row < count; ++row, out += bytes) std::memcpy(out, rows + row * stride, bytes);
  return out;
}

}  // namespace

std::optional<PixelFormat> PixelFormatOf(const std::string& name) {
  if (name == "bgr") return PixelFormat::kBgr;
  if (name == "rgb") return PixelFormat::kRgb;
  if (name == "gray") return PixelFormat::kGrey;
  if (name == "yuv420") return PixelFormat::kI420;
  if (name == "nv12") return PixelFormat::kNv12;
  if (name == "yuyv") return PixelFormat::kYuyv;
  return std::nullopt;
}

size_t FrameBytes(const CameraFrame& frame) {
  const auto [pixels, height, width, stated, format] = frame;
  const std::string what = "a frame of " + std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (height < 1 || width < 1 || static_cast<int64_t>(height) * width > kMaximumPixels) {
    throw Failure(Code::kInput, what,
                  "both sides are above zero, and there are at most " + std::to_string(kMaximumPixels) + " pixels");
  }
  const bool halves_width = HasPlanes(format) || format == PixelFormat::kYuyv;
  if ((halves_width && width % 2 != 0) || (HasPlanes(format) && height % 2 != 0)) {
    throw Failure(Code::kInput, what, "in this format two pixels share their colour: sides are even");
  }
  const size_t least = BytesOfRow(width, format);
  const size_t stride = StrideOf(frame);
  const auto rows = static_cast<size_t>(height);
  size_t bytes = 0;
  if (stride < least || (format == PixelFormat::kI420 && stride % 2 != 0) ||
      __builtin_mul_overflow(stride, HasPlanes(format) ? rows + rows / 2 : rows, &bytes)) {
    throw Failure(Code::kInput, "rows of " + std::to_string(width) + " pixels need " + std::to_string(least) + " bytes",
                  "the frame has " + std::to_string(stride) + " for each");
  }
  return bytes;
}

void CopyFrame(const CameraFrame& frame, void* memory) {
  FrameBytes(frame);
  if (!frame.pixels) throw Failure(Code::kUsage, "the pixels of a frame are null");
  const size_t row = BytesOfRow(frame.width, frame.format);
  const size_t stride = StrideOf(frame);
  const auto rows = static_cast<size_t>(frame.height);
  uint8_t* out = CopyRows(frame.pixels, rows, row, stride, static_cast<uint8_t*>(memory));
  const uint8_t* colours = frame.pixels + stride * rows;  // of formats with planes
  if (frame.format == PixelFormat::kNv12) CopyRows(colours, rows / 2, row, stride, out);
  if (frame.format == PixelFormat::kI420) CopyRows(colours, rows, row / 2, stride / 2, out);
}

Image FromFrame(const CameraFrame& frame) {
  FrameBytes(frame);
  const auto [pixels, height, width, stated, format] = frame;
  const size_t stride = StrideOf(frame);
  if (!pixels) throw Failure(Code::kUsage, "the pixels of a frame are null");
  if (format == PixelFormat::kBgr) return {pixels, height, width, stride};
  Image image(height, width);
  const uint8_t* colours = pixels + stride * static_cast<size_t>(height);  // of formats with planes
  const uint8_t* second = colours + stride / 2 * static_cast<size_t>(height / 2);
  for (int y = 0; y < height; ++y) {
    const uint8_t* row = pixels + stride * static_cast<size_t>(y);
    uint8_t* out = image.MutableRow(y);
    const auto half = static_cast<size_t>(y / 2);
    for (int x = 0; x < width; ++x, out += 3) {
      const int pair = x / 2;
      switch (format) {
        case PixelFormat::kRgb:
          std::reverse_copy(row + 3 * x, row + 3 * x + 3, out);
          break;
        case PixelFormat::kI420:
          WritePixel(row[x], colours[stride / 2 * half + pair], second[stride / 2 * half + pair], out);
          break;
        case PixelFormat::kNv12:
          WritePixel(row[x], colours[stride * half + 2 * pair], colours[stride * half + 2 * pair + 1], out);
          break;
        case PixelFormat::kYuyv:
          WritePixel(row[2 * x], row[4 * pair + 1], row[4 * pair + 3], out);
          break;
        default:
          std::fill(out, out + 3, row[x]);
      }
    }
  }
  return image;
}

}  // namespace agent
