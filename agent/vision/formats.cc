#include "vision/formats.h"

#include <algorithm>
#include <cstring>
#include <iterator>
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

// What is known of each format, in the order of PixelFormat.
struct Known {
  const char* name;
  size_t bytes;  // of a pixel, or of one in the first plane
  bool has_planes;
};
constexpr Known kKnown[] = {{"bgr", 3, false},   {"rgb", 3, false}, {"gray", 1, false},
                            {"yuv420", 1, true}, {"nv12", 1, true}, {"yuyv", 2, false}};

size_t BytesOfRow(int width, PixelFormat format) {
  return static_cast<size_t>(width) * kKnown[static_cast<size_t>(format)].bytes;
}

bool HasPlanes(PixelFormat format) { return kKnown[static_cast<size_t>(format)].has_planes; }

size_t StrideOf(const CameraFrame& frame) {
  return frame.stride == 0 ? BytesOfRow(frame.width, frame.format) : frame.stride;
}

uint8_t* CopyRows(const uint8_t* rows, size_t count, size_t bytes, size_t stride, uint8_t* out) {
  for (size_t row = 0; row < count; ++row, out += bytes) std::memcpy(out, rows + row * stride, bytes);
  return out;
}

}  // namespace

std::optional<PixelFormat> PixelFormatOf(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& each) { return each.name == name; });
  if (found == std::end(kKnown)) return std::nullopt;
  return static_cast<PixelFormat>(found - std::begin(kKnown));
}

size_t FrameBytes(const CameraFrame& frame) {
  const auto [pixels, height, width, stated, format] = frame;
  RequireSize(height, width, "a frame");
  const bool halves_width = HasPlanes(format) || format == PixelFormat::kYuyv;
  if ((halves_width && width % 2 != 0) || (HasPlanes(format) && height % 2 != 0)) {
    throw Failure(Code::kInput, "a frame of " + std::to_string(width) + " x " + std::to_string(height) + " pixels",
                  "in this format two pixels share their colour: sides are even");
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
