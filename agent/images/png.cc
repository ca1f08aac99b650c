#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "images/codecs.h"
#include "images/system_library.h"

namespace agent {
namespace {

// The part of libpng's C interface that is used (its manual: `libpng-manual.txt`); its records stay its own.
struct Png;
struct Info;
using OnError = void (*)(Png*, const char* message);
using OnRead = void (*)(Png*, unsigned char* data, size_t size);

#define EDGEDEPLOY_PNG_FUNCTIONS(FUNCTION)                                                      \
  FUNCTION(png_get_libpng_ver, const char*, (const Png*))                                       \
  FUNCTION(png_create_read_struct, Png*, (const char* version, void* client, OnError, OnError)) \
  FUNCTION(png_create_info_struct, Info*, (Png*))                                               \
  FUNCTION(png_destroy_read_struct, void, (Png**, Info**, Info * *end))                         \
  FUNCTION(png_get_error_ptr, void*, (const Png*))                                              \
  FUNCTION(png_get_io_ptr, void*, (const Png*))                                                 \
  FUNCTION(png_set_read_fn, void, (Png*, void* io, OnRead))                                     \
  FUNCTION(png_set_user_limits, void, (Png*, uint32_t width, uint32_t height))                  \
  FUNCTION(png_set_chunk_malloc_max, void, (Png*, size_t most))                                 \
  FUNCTION(png_read_info, void, (Png*, Info*))                                                  \
  FUNCTION(png_get_image_width, uint32_t, (const Png*, const Info*))                            \
  FUNCTION(png_get_image_height, uint32_t, (const Png*, const Info*))                           \
  FUNCTION(png_set_strip_16, void, (Png*))                                                      \
  FUNCTION(png_set_strip_alpha, void, (Png*))                                                   \
  FUNCTION(png_set_palette_to_rgb, void, (Png*))                                                \
  FUNCTION(png_set_gray_to_rgb, void, (Png*))                                                   \
  FUNCTION(png_set_bgr, void, (Png*))                                                           \
  FUNCTION(png_set_interlace_handling, int, (Png*))                                             \
  FUNCTION(png_read_update_info, void, (Png*, Info*))                                           \
  FUNCTION(png_get_rowbytes, size_t, (const Png*, const Info*))                                 \
  FUNCTION(png_read_image, void, (Png*, unsigned char** rows))                                  \
  FUNCTION(png_read_end, void, (Png*, Info*))

struct Api {
#define EDGEDEPLOY_PNG_DECLARE(name, result, parameters) result(*name) parameters;
  EDGEDEPLOY_PNG_FUNCTIONS(EDGEDEPLOY_PNG_DECLARE)
#undef EDGEDEPLOY_PNG_DECLARE
};

const Api& Library() {
  static const Api api = [] {
    const SystemLibrary library({"libpng16.so.16"}, "a PNG image", "libpng16-16");
    Api found;
#define EDGEDEPLOY_PNG_FIND(name, result, parameters) library.Find(#name, &found.name);
    EDGEDEPLOY_PNG_FUNCTIONS(EDGEDEPLOY_PNG_FIND)
#undef EDGEDEPLOY_PNG_FIND
    return found;
  }();
  return api;
}

// What a file is read with. The library ends what it cannot do by a jump: see jpeg.cc.
struct Reading {
  std::string_view left;
  std::jmp_buf back;
  char message[200];
  Png* png = nullptr;
  Info* info = nullptr;
};

[[noreturn]] void Jump(Png* png, const char* message) {
  auto* reading = static_cast<Reading*>(Library().png_get_error_ptr(png));
  std::snprintf(reading->message, sizeof reading->message, "%s", message);
  std::longjmp(reading->back, 1);
}

void Pass(Png*, const char*) {}

void Read(Png* png, unsigned char* data, size_t size) {
  auto* reading = static_cast<Reading*>(Library().png_get_io_ptr(png));
  if (size > reading->left.size()) Jump(png, "it ends too early");
  std::memcpy(data, reading->left.data(), size);
  reading->left.remove_prefix(size);
}

constexpr size_t kMaximumChunk = size_t{1} << 26;
constexpr uint32_t kMaximumSide = 1 << 20;

// Reads the header, and says what pixels are wanted.
bool Begin(const Api& api, Reading* reading) {
  if (setjmp(reading->back)) return false;
  // Any version of this interface will do.
  reading->png = api.png_create_read_struct(api.png_get_libpng_ver(nullptr), reading, Jump, Pass);
  if (reading->png == nullptr) return false;
  reading->info = api.png_create_info_struct(reading->png);
  if (reading->info == nullptr) return false;
  api.png_set_read_fn(reading->png, reading, Read);
  api.png_set_user_limits(reading->png, kMaximumSide, kMaximumSide);
  api.png_set_chunk_malloc_max(reading->png, kMaximumChunk);
  api.png_read_info(reading->png, reading->info);
  for (const auto set : {api.png_set_strip_16, api.png_set_palette_to_rgb, api.png_set_gray_to_rgb,
                         api.png_set_strip_alpha, api.png_set_bgr}) {
    set(reading->png);  // what an image does not have is left as it is
  }
  return true;
}

bool ReadRows(const Api& api, Reading* reading, size_t row_bytes, unsigned char** rows) {
  if (setjmp(reading->back)) return false;
  api.png_set_interlace_handling(reading->png);
  api.png_read_update_info(reading->png, reading->info);
  if (api.png_get_rowbytes(reading->png, reading->info) != row_bytes)
    Jump(reading->png, "its pixels are of no known kind");
  api.png_read_image(reading->png, rows);
  api.png_read_end(reading->png, nullptr);
  return true;
}

}  // namespace

bool IsPng(std::string_view content) { return content.substr(0, 8) == "\x89PNG\r\n\x1A\n"; }

std::optional<std::string_view> FindChunk(std::string_view content, std::string_view name) {
  constexpr size_t kAround = 12;  // length, name and checksum
  constexpr size_t kSignature = 8;
  std::optional<std::string_view> found = "";
  for (size_t place = kSignature; place + kAround <= content.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(content[place + i]);
    if (length > content.size() - place - kAround) return std::nullopt;
    if (found->empty() && content.substr(place + 4, 4) == name) found = content.substr(place + 8, length);
    place += kAround + length;
  }
  return found;
}

Image DecodePng(std::string_view content, const std::string& name) {
  // The library would ask for the memory that a chunk announces before it reads.
  if (!FindChunk(content, "")) throw Undecodable(name, "it ends too early");
  const Api& api = Library();
  const auto release = [&api](Reading* reading) {
    if (reading->png != nullptr) api.png_destroy_read_struct(&reading->png, &reading->info, nullptr);
    delete reading;
  };
  const std::unique_ptr<Reading, decltype(release)> reading(new Reading{}, release);
  reading->left = content;
  if (!Begin(api, reading.get())) throw Undecodable(name, reading->message);
  const uint32_t width = api.png_get_image_width(reading->png, reading->info);
  const uint32_t height = api.png_get_image_height(reading->png, reading->info);
  Image image = Sized(height, width, name);
  std::vector<unsigned char*> rows(height);
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.MutableRow(static_cast<int>(y));
  if (!ReadRows(api, reading.get(), size_t{3} * width, rows.data())) throw Undecodable(name, reading->message);
  return image;
}

}  // namespace agent
