// JPEG by the board's own libjpeg-turbo, whose pixels are those that OpenCV decodes on the host.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "vision/image.h"

namespace agent {

bool IsJpeg(std::string_view content);

// Calls `visit` with the marker and the content of each segment (ITU T.81, annex B) until it returns false.
void EachSegment(std::string_view content, const std::function<bool(unsigned char, std::string_view)>& visit);
inline constexpr unsigned char kScan = 0xDA;  // the marker before pixels

// The pixels as they lie in the file: `Orientation` of image_file.h says how they are to be turned. `name` is that of
// the file in messages. Failure(kInput) for what is damaged or too large, or if the board has no libjpeg-turbo.
Image DecodeJpeg(std::string_view content, const std::string& name);

// Quality from 0 to 100. Failure(kInput) if the image is too large for JPEG, or the board has no libjpeg-turbo.
std::string EncodeJpeg(const Image& image, int quality);

}  // namespace agent
