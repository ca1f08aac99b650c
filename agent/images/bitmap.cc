#include <algorithm>
#include <cstdlib>

#include "images/codecs.h"

namespace agent {
namespace {

bool IsSpace(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

// Takes a number and the white space and comments before it from the beginning of a header; -1 if there is none.
int64_t TakeNumber(std::string_view* text) {
  while (!text->empty() && (IsSpace(text->front()) || text->front() == '#')) {
    const size_t end = text->front() == '#' ? text->find('\n') : 0;
    text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  }
  int64_t number = -1;
  while (!text->empty() && text->front() >= '0' && text->front() <= '9' && number < kMaximumPixels) {
    number = std::max<int64_t>(number, 0) * 10 + (text->front() - '0');
    text->remove_prefix(1);
  }
  return number;
}

// A number of little end.
int64_t Number(std::string_view content, size_t place, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(content[place + i])} << (8 * i);
  return bytes == 4 ? static_cast<int64_t>(static_cast<int32_t>(value)) : static_cast<int64_t>(value);
}

}  // namespace

bool IsNetpbm(std::string_view content) {
  return content.size() > 2 && content[0] == 'P' && (content[1] == '5' || content[1] == '6') && IsSpace(content[2]);
}

bool IsBmp(std::string_view content) { return content.substr(0, 2) == "BM"; }

Image DecodeNetpbm(std::string_view content, const std::string& name) {
  const int channels = content[1] == '6' ? 3 : 1;
  content.remove_prefix(2);
  const int64_t width = TakeNumber(&content);
  const int64_t height = TakeNumber(&content);
  if (TakeNumber(&content) != 255) throw Undecodable(name, "it has no 255 levels");
  Image image = Sized(height, width, name);
  const size_t row_bytes = static_cast<size_t>(width) * static_cast<size_t>(channels);
  if (content.size() < 1 + row_bytes * static_cast<size_t>(height)) throw Undecodable(name, "it ends too early");
  content.remove_prefix(1);
  for (int y = 0; y < image.height(); ++y) {
    const auto* from = reinterpret_cast<const uint8_t*>(content.data()) + row_bytes * static_cast<size_t>(y);
    uint8_t* pixel = image.MutableRow(y);
    for (int x = 0; x < image.width(); ++x, pixel += 3, from += channels) {
      for (int i = 0; i < 3; ++i) pixel[i] = channels == 3 ? from[2 - i] : from[0];
    }
  }
  return image;
}

Image DecodeBmp(std::string_view content, const std::string& name) {
  const auto refused = [&](const std::string& why) { return Undecodable(name, why); };
  constexpr size_t kHeader = 54;
  constexpr size_t kInfo = 14;  // where the second header begins
  if (content.size() < kHeader) throw refused("it ends too early");
  const int64_t pixels = Number(content, 10, 4);
  const int64_t info_bytes = Number(content, kInfo, 4);
  const int64_t width = Number(content, 18, 4);
  const int64_t rows = Number(content, 22, 4);  // negative where the first is at the top
  const int64_t bits = Number(content, 28, 2);
  // Colours by masks are read where these are the usual ones; other kinds are compressed.
  const int64_t kind = Number(content, 30, 4);
  const bool masked = kind == 3 && bits == 32 && content.size() >= kHeader + 12 && Number(content, 54, 4) == 0xFF0000 &&
                      Number(content, 58, 4) == 0xFF00 && Number(content, 62, 4) == 0xFF;
  if (info_bytes < 40 || (kind != 0 && !masked)) throw refused("it is of a kind of BMP that is not read here");
  if (bits != 8 && bits != 24 && bits != 32)
    throw refused("a BMP of " + std::to_string(bits) + " bits is not read here");
  Image image = Sized(std::abs(rows), width, name);
  const auto step = static_cast<size_t>(bits / 8);
  const size_t row_bytes = (static_cast<size_t>(width) * step + 3) / 4 * 4;
  const size_t palette = kInfo + static_cast<size_t>(info_bytes);
  const auto colours = static_cast<size_t>(Number(content, 46, 4) > 0 ? Number(content, 46, 4) : 256);
  const size_t begin = static_cast<size_t>(std::max<int64_t>(pixels, 0));
  const size_t wanted = row_bytes * static_cast<size_t>(image.height());
  if (begin < kHeader || begin > content.size() || wanted > content.size() - begin) throw refused("it ends too early");
  if (bits == 8 && (colours > 256 || palette > begin || colours > (begin - palette) / 4)) {
    throw refused("its palette is damaged");
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.data());
  for (int y = 0; y < image.height(); ++y) {
    const int from_y = rows < 0 ? y : image.height() - 1 - y;
    const uint8_t* from = bytes + begin + row_bytes * static_cast<size_t>(from_y);
    uint8_t* pixel = image.MutableRow(y);
    for (int x = 0; x < image.width(); ++x, pixel += 3, from += step) {
      if (bits == 8 && *from >= colours) throw refused("its palette is damaged");
      std::copy_n(bits == 8 ? bytes + palette + 4 * size_t{*from} : from, 3, pixel);
    }
  }
  return image;
}

}  // namespace agent
