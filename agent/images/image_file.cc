#include "images/image_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>

#include "files.h"
#include "images/codecs.h"

namespace agent {
namespace {

constexpr int kUpright = 1;

// Of the TIFF structure that EXIF data is: the tag in its first directory.
int OrientationOfTiff(std::string_view tiff) {
  constexpr uint32_t kTag = 0x0112;
  const bool little = tiff.substr(0, 4) == std::string_view("II*\0", 4);
  if (!little && tiff.substr(0, 4) != std::string_view("MM\0*", 4)) return kUpright;
  const auto number = [&](size_t place, size_t bytes) -> uint32_t {
    if (place > tiff.size() || bytes > tiff.size() - place) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      value = value << 8 | static_cast<uint8_t>(tiff[place + (little ? bytes - 1 - i : i)]);
    }
    return value;
  };
  const size_t directory = number(4, 4);
  const uint32_t entries = number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry >= tiff.size()) break;
    if (number(entry, 2) != kTag) continue;
    const uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

// EXIF data is one of the segments APP1 before the pixels.
int OrientationOfJpeg(std::string_view content) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  std::string_view tiff;
  EachSegment(content, [&](unsigned char marker, std::string_view segment) {
    if (marker == 0xE1 && segment.substr(0, kExif.size()) == kExif) tiff = segment.substr(kExif.size());
    return marker != kScan && tiff.empty();
  });
  return OrientationOfTiff(tiff);
}

// The image turned upright, as OpenCV does it.
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

}  // namespace

Failure Undecodable(const std::string& name, const std::string& why) {
  return Failure(Code::kInput, "cannot decode the image " + name, why);
}

Image Sized(int64_t height, int64_t width, const std::string& name) {
  if (height <= 0 || width <= 0) throw Undecodable(name, "its sides are not positive");
  if (height > kMaximumPixels / width) throw Failure(Code::kInput, "the image " + name + " is too large");
  return Image(static_cast<int>(height), static_cast<int>(width));
}

std::string ReadImageFile(const std::string& path) {
  const auto refused = [&] { return Failure(Code::kInput, "cannot read the image " + path, SystemError()); };
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw refused();
  constexpr size_t kPiece = size_t{1} << 16;
  std::string content;
  for (;;) {
    const size_t size = content.size();
    if (size > kMaximumImageBytes) throw Failure(Code::kInput, "the image " + path + " is too large");
    content.resize(std::max(2 * size, kPiece));
    const ssize_t count = ReadSome(file.get(), content.data() + size, content.size() - size);
    if (count < 0) throw refused();
    content.resize(size + static_cast<size_t>(count));
    if (count == 0) return content;
  }
}

int Orientation(std::string_view content) {
  if (IsJpeg(content)) return OrientationOfJpeg(content);
  return IsPng(content) ? OrientationOfTiff(FindChunk(content, "eXIf").value_or("")) : kUpright;
}

Image DecodeImage(std::string_view content, const std::string& name) {
  const auto decoded = [&]() -> Image {
    if (IsJpeg(content)) return DecodeJpeg(content, name);
    if (IsPng(content)) return DecodePng(content, name);
    if (IsNetpbm(content)) return DecodeNetpbm(content, name);
    if (IsBmp(content)) return DecodeBmp(content, name);
    throw Failure(Code::kInput, name + " is not an image",
                  content.empty() ? "the file is empty" : "on the board JPEG, PNG, BMP, PPM and PGM are read");
  };
  return Upright(decoded(), Orientation(content));
}

}  // namespace agent
