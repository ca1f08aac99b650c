// How a camera was held, by the EXIF data of its image (CIPA DC-008, tag 0x0112).
#pragma once

#include <string_view>

#include "vision/image.h"

namespace agent {

// 1 for upright, 2 to 8 for the others as EXIF numbers them; of a JPEG or PNG, and 1 for all that does not say it.
int Orientation(std::string_view content);

// The image turned upright, as OpenCV does it.
Image Upright(Image image, int orientation);

}  // namespace agent
