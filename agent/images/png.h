// PNG by the board's own libpng.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "vision/image.h"

namespace agent {

bool IsPng(std::string_view content);

// The data of the first chunk with a name; empty without such a chunk, nothing if a chunk exceeds the file.
std::optional<std::string_view> FindChunk(std::string_view content, std::string_view name);

// As DecodeJpeg. Levels of 16 bits are cut off to 8, transparency is dropped.
Image DecodePng(std::string_view content, const std::string& name);

}  // namespace agent
