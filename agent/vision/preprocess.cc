#include "vision/preprocess.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "elements.h"
#include "failure.h"
#include "vision/outputs.h"
#include "vision/resize.h"

namespace agent {
namespace {

constexpr int kLevels = 256;
constexpr size_t kPixel = 3;
constexpr uint8_t kLetterboxGrey = 114;  // of Ultralytics' LetterBox

Image Borrowed(const Image& image) { return {image.Row(0), image.height(), image.width(), image.stride()}; }

Image Resized(const Image& image, Size size, Fit fit) {
  if (size == Size{image.height(), image.width()}) return Borrowed(image);
  switch (fit) {
    case Fit::kStretch:
      return Stretched(image, size);
    case Fit::kPad:
      return Averaged(image, size);
    default:
      return Interpolated(image, size);
  }
}

// OpenCV's weights of blue, green and red.
uint8_t Grey(const uint8_t* pixel) {
  return static_cast<uint8_t>((pixel[0] * 3735 + pixel[1] * 19235 + pixel[2] * 9798 + (1 << 14)) >> 15);
}

// A value in the input's type; integers are rounded, and limited to their range.
template <typename Element>
Element ElementOf(float value, const std::optional<Steps>& steps) {
  if constexpr (!std::is_integral_v<Element>) {
    return static_cast<Element>(value);
  } else {
    if (steps) value = value / steps->scale;
    value = std::nearbyint(value);
    if (steps) value += static_cast<float>(steps->zero_point);
    if (std::isnan(value)) value = 0;
    const auto least = static_cast<double>(std::numeric_limits<Element>::min());
    const auto most = static_cast<double>(std::numeric_limits<Element>::max());
    return static_cast<Element>(std::min(std::max(double{value}, least), most));
  }
}

template <typename Element>
void Write(const Image& pixels, const ImageInput& input, const TensorSpec& tensor, void* memory) {
  const size_t channels = input.mean.size();
  const bool planes = input.layout == "NCHW";
  const Size size = InputSize(input, tensor);
  if (size != Size{pixels.height(), pixels.width()}) std::memset(memory, 0, tensor.bytes);
  const size_t area = static_cast<size_t>(size.height) * size.width;
  for (size_t channel = 0; channel < channels; ++channel) {
    const float mean = static_cast<float>(input.mean[channel]);
    const float scale = static_cast<float>(input.scale[channel]);
    Element values[kLevels];
    for (int level = 0; level < kLevels; ++level) {
      values[level] = ElementOf<Element>((static_cast<float>(level) - mean) * scale, tensor.steps);
    }
    const size_t source = input.colour == "RGB" ? kPixel - 1 - channel : channel;
    Element* const begin = static_cast<Element*>(memory) + (planes ? channel * area : channel);
    const size_t step = planes ? 1 : channels;
    for (int y = 0; y < pixels.height(); ++y) {
      const uint8_t* row = pixels.Row(y);
      Element* out = begin + static_cast<size_t>(y) * size.width * step;
      for (int x = 0; x < pixels.width(); ++x, row += kPixel, out += step) {
        *out = values[channels == 1 ? Grey(row) : row[source]];
      }
    }
  }
}

}  // namespace

Placed Place(const Image& image, Size size, Fit fit) {
  const Frame frame = Framed({image.height(), image.width()}, size, fit);
  if (fit == Fit::kContain) return {Projected(image, size, frame), frame};
  const Size inner = frame.Inner();
  if (fit == Fit::kCover) {
    return {Filtered(image, inner, -static_cast<int>(frame.offset_x), -static_cast<int>(frame.offset_y), size), frame};
  }
  Image resized = Resized(image, fit == Fit::kStretch ? size : inner, fit);
  // Beyond the end of a line there is no image.
  if (Size{resized.height(), resized.width()} == size || fit == Fit::kLine) return {std::move(resized), frame};
  Image canvas(size.height, size.width);
  const int left = static_cast<int>(frame.offset_x);
  const int top = static_cast<int>(frame.offset_y);
  if (fit == Fit::kLetterbox) std::memset(canvas.MutableRow(0), kLetterboxGrey, canvas.stride() * size.height);
  const size_t width = kPixel * static_cast<size_t>(std::min(resized.width(), size.width - left));
  for (int y = 0; y < std::min(resized.height(), size.height - top); ++y) {
    std::memcpy(canvas.MutableRow(y + top) + left * kPixel, resized.Row(y), width);
  }
  return {std::move(canvas), frame};
}

Size InputSize(const ImageInput& input, const TensorSpec& tensor) {
  const bool planes = input.layout == "NCHW";
  const auto& shape = tensor.shape;
  const auto channels = static_cast<int64_t>(input.mean.size());
  const bool known = (planes || input.layout == "NHWC") && (channels == 1) == (input.colour == "GRAY") &&
                     (channels == 1 || input.colour == "RGB" || input.colour == "BGR");
  if (!known || shape.size() != 4 || shape[0] != 1 || shape[planes ? 1 : 3] != channels || tensor.bytes == 0) {
    throw Failure(
        Code::kInput, "the network's input '" + tensor.name + "' is not an image as the package describes it",
        "its shape is " + Shown(shape) + ", and needed is a batch of one, " + input.layout + ", " + input.colour);
  }
  const size_t first = planes ? 2 : 1;
  return {static_cast<int>(shape[first]), static_cast<int>(shape[first + 1])};
}

void WriteTensor(const Image& pixels, const ImageInput& input, const TensorSpec& tensor, void* memory) {
  const std::string type = tensor.type.name;
  if (type == "int64" || type == "uint32" || type == "uint64" || type == "bool") {
    throw Failure(Code::kInput, "no image becomes an input of " + type);
  }
  WithElement(tensor.type, [&](auto zero) { Write<decltype(zero)>(pixels, input, tensor, memory); });
}

}  // namespace agent
