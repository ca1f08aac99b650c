// The formats of image files that the agent reads and writes. Decoders call the file `name` in messages; all of
// them throw Failure(kInput) for what is damaged or too large.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "failure.h"
#include "vision/image.h"

namespace agent {

Failure Undecodable(const std::string& name, const std::string& why);
// A black image to decode into. Failure(kInput) for sides that no image has, before memory is asked for.
Image Sized(int64_t height, int64_t width, const std::string& name);

// JPEG by the board's own libjpeg-turbo, whose pixels are those that OpenCV decodes on the host.

bool IsJpeg(std::string_view content);
// Calls `visit` with the marker and the content of each segment (ITU T.81, annex B) until it returns false.
void EachSegment(std::string_view content, const std::function<bool(unsigned char, std::string_view)>& visit);
inline constexpr unsigned char kScan = 0xDA;  // the marker before pixels
// The pixels as they lie in the file: `Orientation` of image_file.h says how they are to be turned. Failure(kInput)
// also if the board has no libjpeg-turbo.
Image DecodeJpeg(std::string_view content, const std::string& name);
// Quality from 0 to 100. Failure(kInput) if the image is too large for JPEG, or the board has no libjpeg-turbo.
std::string EncodeJpeg(const Image& image, int quality);

// PNG by the board's own libpng.

bool IsPng(std::string_view content);
// The data of the first chunk with a name; empty without such a chunk, nothing if a chunk exceeds the file.
std::optional<std::string_view> FindChunk(std::string_view content, std::string_view name);
// As DecodeJpeg. Levels of 16 bits are cut off to 8, transparency is dropped.
Image DecodePng(std::string_view content, const std::string& name);

// Formats that hold plain pixels: PPM and PGM (netpbm's P5 and P6) of 255 levels; and BMP without compression, of 24 or
// 32 bits for each pixel or 8 with a palette.

bool IsNetpbm(std::string_view content);
bool IsBmp(std::string_view content);
Image DecodeNetpbm(std::string_view content, const std::string& name);
Image DecodeBmp(std::string_view content, const std::string& name);

}  // namespace agent
