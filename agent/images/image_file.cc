#include "images/image_file.h"

#include <fcntl.h>

#include <algorithm>

#include "failure.h"
#include "files.h"
#include "images/bitmap.h"
#include "images/exif.h"
#include "images/jpeg.h"
#include "images/png.h"

namespace agent {

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
