#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "images/codecs.h"
#include "images/jpeg_api.h"
#include "images/system_library.h"

namespace agent {
namespace {

using jpeg::Api;
using jpeg::Common;
using jpeg::Compression;
using jpeg::Decompression;

// The library ends what it cannot do by a jump: between setjmp and the jump no object with a destructor may be made.
struct Errors {
  jpeg::ErrorManager manager;
  std::jmp_buf back;
  char message[jpeg::kMessageBytes];
};

[[noreturn]] void Jump(Common* common) {
  auto* errors = reinterpret_cast<Errors*>(common->errors);
  errors->manager.format_message(common, errors->message);
  std::longjmp(errors->back, 1);
}

// All of a file is there from the beginning. What ends too early is refused, as OpenCV does it; the library would fill
// it up.
int FillNothing(Decompression* state) {
  auto* errors = reinterpret_cast<Errors*>(state->errors);
  std::snprintf(errors->message, sizeof errors->message, "it ends too early");
  std::longjmp(errors->back, 1);
}

void Skip(Decompression* state, long count) {
  if (count <= 0) return;
  if (static_cast<unsigned long>(count) > state->source->left) FillNothing(state);
  state->source->next += count;
  state->source->left -= static_cast<size_t>(count);
}

void DoNothing(Decompression*) {}

// Warnings are of damage that the library makes up for, as it does for OpenCV; nothing prints them.
void Pass(Common*, int) {}

const Api& Library() {
  static const Api api = [] {
    const SystemLibrary library({"libjpeg.so.62", "libjpeg.so.8"}, "a JPEG image", "libjpeg62-turbo");
    Api found;
    found.version = library.name() == "libjpeg.so.62" ? jpeg::kVersion62 : jpeg::kVersion80;
#define EDGEDEPLOY_JPEG_FIND(name, result, parameters) library.Find(#name, &found.name);
    EDGEDEPLOY_JPEG_FUNCTIONS(EDGEDEPLOY_JPEG_FIND)
#undef EDGEDEPLOY_JPEG_FIND
    return found;
  }();
  return api;
}

void Prepare(const Api& api, Errors* errors, Common* common) {
  common->errors = api.jpeg_std_error(&errors->manager);
  errors->manager.error_exit = Jump;
  errors->manager.emit_message = Pass;
}

// Reads the header. False if the library refuses it; the message says why.
bool Begin(const Api& api, jpeg::Source* source, Errors* errors, Decompression* state) {
  if (setjmp(errors->back)) return false;
  api.jpeg_CreateDecompress(state, api.version.number, api.version.decompression);
  state->source = source;
  api.jpeg_read_header(state, 1);
  state->out_colours = state->components == 4 ? jpeg::kCmyk : jpeg::kBgr;
  state->method = jpeg::kAccurate;
  return true;
}

// Reads all rows; those of four inks, `inks` has room for, become colours.
bool ReadRows(const Api& api, Errors* errors, Decompression* state, Image* image, unsigned char* inks) {
  if (setjmp(errors->back)) return false;
  api.jpeg_start_decompress(state);
  for (int y = 0; y < image->height(); ++y) {
    unsigned char* pixels = image->MutableRow(y);
    unsigned char* row = inks != nullptr ? inks : pixels;
    api.jpeg_read_scanlines(state, &row, 1);
    for (int x = 0; inks != nullptr && x < image->width(); ++x) {
      const int black = inks[4 * x + 3];
      for (int i = 0; i < 3; ++i) {
        // As OpenCV has it: inks are stored as what they leave of the light.
        pixels[3 * x + 2 - i] = static_cast<unsigned char>(black - ((255 - inks[4 * x + i]) * black >> 8));
      }
    }
  }
  api.jpeg_finish_decompress(state);
  return true;
}

bool Write(const Api& api, const Image& image, int quality, Errors* errors, Compression* state, unsigned char** content,
           unsigned long* size) {
  if (setjmp(errors->back)) return false;
  api.jpeg_CreateCompress(state, api.version.number, api.version.compression);
  api.jpeg_mem_dest(state, content, size);
  state->image_width = static_cast<unsigned>(image.width());
  state->image_height = static_cast<unsigned>(image.height());
  state->input_components = 3;
  state->in_colours = jpeg::kBgr;
  api.jpeg_set_defaults(state);
  api.jpeg_set_quality(state, quality, 1);
  api.jpeg_start_compress(state, 1);
  for (int y = 0; y < image.height(); ++y) {
    auto* row = const_cast<unsigned char*>(image.Row(y));
    api.jpeg_write_scanlines(state, &row, 1);
  }
  api.jpeg_finish_compress(state);
  return true;
}

// Whether a progressive image has more scans than any program writes. Each is a pass over all of the image, however
// short it is in the file.
bool HasTooManyScans(std::string_view content) {
  constexpr int kMostScans = 100;
  int scans = 0;
  EachSegment(content, [&](unsigned char marker, std::string_view) {
    scans += marker == kScan;
    return scans <= kMostScans;
  });
  return scans > kMostScans;
}

}  // namespace

bool IsJpeg(std::string_view content) { return content.substr(0, 3) == "\xFF\xD8\xFF"; }

void EachSegment(std::string_view content, const std::function<bool(unsigned char, std::string_view)>& visit) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(content[at]); };
  for (size_t at = 2; (at = content.find('\xFF', at)) != std::string_view::npos && at + 3 < content.size();) {
    const unsigned char marker = byte(at + 1);
    if (marker == 0xFF) {
      ++at;  // one that fills up
    } else if (marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += 2;  // a byte of a scan, or a marker without a segment
    } else {
      const size_t size = byte(at + 2) << 8 | byte(at + 3);  // with these two
      if (marker == 0xD9 || !visit(marker, content.substr(at + 4, std::max<size_t>(size, 2) - 2))) return;
      at += 2 + size;
    }
  }
}

Image DecodeJpeg(std::string_view content, const std::string& name) {
  if (HasTooManyScans(content)) throw Undecodable(name, "it has too many scans");
  const Api& api = Library();
  const auto errors = std::make_unique<Errors>();
  const auto release = [&api](Decompression* state) {
    api.jpeg_destroy_decompress(state);
    delete state;
  };
  const std::unique_ptr<Decompression, decltype(release)> state(new Decompression{}, release);
  Prepare(api, errors.get(), state.get());
  const auto* bytes = reinterpret_cast<const unsigned char*>(content.data());
  jpeg::Source source{bytes, content.size(), DoNothing, FillNothing, Skip, api.jpeg_resync_to_restart, DoNothing};
  if (!Begin(api, &source, errors.get(), state.get())) throw Undecodable(name, errors->message);
  Image image = Sized(state->image_height, state->image_width, name);
  std::vector<unsigned char> inks(state->components == 4 ? 4 * static_cast<size_t>(image.width()) : 0);
  unsigned char* const row = inks.empty() ? nullptr : inks.data();
  if (!ReadRows(api, errors.get(), state.get(), &image, row)) throw Undecodable(name, errors->message);
  return image;
}

std::string EncodeJpeg(const Image& image, int quality) {
  const Api& api = Library();
  const auto errors = std::make_unique<Errors>();
  const auto state = std::make_unique<Compression>();
  Prepare(api, errors.get(), state.get());
  unsigned char* content = nullptr;
  unsigned long size = 0;
  const bool done = Write(api, image, quality, errors.get(), state.get(), &content, &size);
  // Where it fails the memory is still the library's, which may have grown it.
  std::string encoded(done ? reinterpret_cast<char*>(content) : "", done ? size : 0);
  api.jpeg_destroy_compress(state.get());
  if (done) std::free(content);
  if (!done) throw Failure(Code::kInput, "cannot write an image as JPEG", errors->message);
  return encoded;
}

}  // namespace agent
