// Formats that hold plain pixels: PPM and PGM (netpbm's P5 and P6), and BMP.
#pragma once

#include <string>
#include <string_view>

#include "vision/image.h"

namespace agent {

bool IsNetpbm(std::string_view content);
bool IsBmp(std::string_view content);

// As DecodeJpeg; of 255 levels.
Image DecodeNetpbm(std::string_view content, const std::string& name);
// As DecodeJpeg; without compression, of 24 or 32 bits for each pixel or 8 with a palette.
Image DecodeBmp(std::string_view content, const std::string& name);

}  // namespace agent
