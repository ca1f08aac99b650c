// Image files of the formats that the agent knows, told by their content.
#pragma once

#include <string>
#include <string_view>

#include "vision/image.h"

namespace agent {

// More bytes than this are no image's.
inline constexpr size_t kMaximumImageBytes = size_t{1} << 28;

// The content of a file. Failure(kInput) if it cannot be read, or is too large.
std::string ReadImageFile(const std::string& path);

// How a camera was held, by the EXIF data of a JPEG or PNG (CIPA DC-008, tag 0x0112): 1 for upright, 2 to 8 for the
// others as EXIF numbers them; 1 for all that does not say it.
int Orientation(std::string_view content);

// The image that is in a file, turned upright by its EXIF data. Failure(kInput) if it is of no format that is known
// here, damaged, or too large; `name` is the file's in messages.
Image DecodeImage(std::string_view content, const std::string& name);

}  // namespace agent
