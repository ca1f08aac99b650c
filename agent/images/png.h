// PNG by the board's own libpng.
#pragma once

#include <string>
#include <string_view>

#include "vision/image.h"

namespace agent {

bool IsPng(std::string_view content);

// As DecodeJpeg. Levels of 16 bits are cut off to 8, transparency is dropped.
Image DecodePng(std::string_view content, const std::string& name);

}  // namespace agent
