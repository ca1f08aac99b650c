#include "images/exif.h"

#include <cstdint>

#include "images/jpeg.h"
#include "images/png.h"

namespace agent {
namespace {

constexpr int kUpright = 1;

// Unsigned numbers that lie in a text; 0 beyond its end.
class Numbers {
 public:
  Numbers(std::string_view text, bool little) : text_(text), little_(little) {}
  uint32_t At(size_t place, size_t bytes) const {
    if (place > text_.size() || bytes > text_.size() - place) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t next = little_ ? bytes - 1 - i : i;
      value = value << 8 | static_cast<uint8_t>(text_[place + next]);
    }
    return value;
  }

 private:
  std::string_view text_;
  bool little_;
};

// Of the TIFF structure that EXIF data is: the tag in its first directory.
int OrientationOfTiff(std::string_view tiff) {
  constexpr uint32_t kTag = 0x0112;
  const bool little = tiff.substr(0, 4) == std::string_view("II*\0", 4);
  if (!little && tiff.substr(0, 4) != std::string_view("MM\0*", 4)) return kUpright;
  const Numbers numbers(tiff, little);
  const size_t directory = numbers.At(4, 4);
  const uint32_t entries = numbers.At(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry >= tiff.size()) break;
    if (numbers.At(entry, 2) != kTag) continue;
    const uint32_t value = numbers.At(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

// The segments of a JPEG up to its pixels (ITU T.81, annex B): EXIF data is one of APP1.
int OrientationOfJpeg(std::string_view content) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  const Numbers numbers(content, false);
  size_t place = 2;
  while (place + 4 <= content.size() && numbers.At(place, 1) == 0xFF) {
    const uint32_t marker = numbers.At(place + 1, 1);
    if (marker == 0xFF) {  // filling
      ++place;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;
    const size_t size = numbers.At(place + 2, 2);
    if (size < 2) break;
    const std::string_view segment = content.substr(place + 4, size - 2);
    if (marker == 0xE1 && segment.substr(0, kExif.size()) == kExif) {
      return OrientationOfTiff(segment.substr(kExif.size()));
    }
    place += 2 + size;
  }
  return kUpright;
}

// The chunks of a PNG: EXIF data is one of its own.
int OrientationOfPng(std::string_view content) {
  const Numbers numbers(content, false);
  size_t place = 8;
  while (place + 12 <= content.size()) {
    const size_t size = numbers.At(place, 4);
    if (size > content.size() - place - 12) break;
    if (content.substr(place + 4, 4) == "eXIf") return OrientationOfTiff(content.substr(place + 8, size));
    place += 12 + size;
  }
  return kUpright;
}

}  // namespace

int Orientation(std::string_view content) {
  if (IsJpeg(content)) return OrientationOfJpeg(content);
  return IsPng(content) ? OrientationOfPng(content) : kUpright;
}

Image Upright(Image image, int orientation) {
  if (orientation <= kUpright || orientation > 8) return image;
  // First rows become columns, then left becomes right, then up becomes down.
  const bool transposed = orientation >= 5;
  const bool mirrored = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool flipped = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const int height = transposed ? image.width() : image.height();
  const int width = transposed ? image.height() : image.width();
  Image turned(height, width);
  for (int y = 0; y < height; ++y) {
    uint8_t* pixel = turned.MutableRow(y);
    const int from_y = flipped ? height - 1 - y : y;
    for (int x = 0; x < width; ++x, pixel += 3) {
      const int from_x = mirrored ? width - 1 - x : x;
      const uint8_t* from = transposed ? image.Row(from_x) + 3 * from_y : image.Row(from_y) + 3 * from_x;
      for (int i = 0; i < 3; ++i) pixel[i] = from[i];
    }
  }
  return turned;
}

}  // namespace agent
