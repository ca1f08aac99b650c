// The part of libjpeg's C interface that is used, in the binary forms of its versions 6b and 8, which libjpeg-turbo
// has: Debian's libjpeg.so.62 and Ubuntu's libjpeg.so.8 (its documentation: `libjpeg.txt`). Records begin with the
// fields that are named, which lie at the same place in both, and have room for the rest; the library checks the sizes.
#pragma once

#include <cstddef>

namespace agent::jpeg {

struct Common;

inline constexpr int kMessageBytes = 200;

struct ErrorManager {
  void (*error_exit)(Common*);  // may not return
  void (*emit_message)(Common*, int level);
  void (*output_message)(Common*);
  void (*format_message)(Common*, char* text);
  alignas(double) unsigned char rest[512];
};

struct Common {
  ErrorManager* errors;
  void* memory;
  void* progress;
  void* client;
  int is_decompressor;
  int state;
};

struct Decompression;

struct Source {
  const unsigned char* next;
  size_t left;
  void (*begin)(Decompression*);
  int (*fill)(Decompression*);
  void (*skip)(Decompression*, long count);
  int (*resynchronise)(Decompression*, int desired);
  void (*end)(Decompression*);
};

struct Decompression : Common {
  Source* source;
  unsigned image_width;
  unsigned image_height;
  int components;
  int colours;
  int out_colours;
  unsigned scale_numerator;
  unsigned scale_denominator;
  double gamma;
  int buffered_image;
  int raw_data_out;
  int method;
  alignas(double) unsigned char rest[1024];
};

struct Compression : Common {
  void* destination;
  unsigned image_width;
  unsigned image_height;
  int input_components;
  int in_colours;
  alignas(double) unsigned char rest[1024];
};

// What the library itself takes these records for.
struct Version {
  int number;
  size_t decompression;
  size_t compression;
};
inline constexpr bool kWide = sizeof(void*) == 8;
inline constexpr Version kVersion62 = {62, kWide ? 632 : 464, kWide ? 520 : 376};
inline constexpr Version kVersion80 = {80, kWide ? 656 : 488, kWide ? 584 : 432};

// Kinds of colours.
inline constexpr int kCmyk = 4;
inline constexpr int kBgr = 8;       // libjpeg-turbo's own
inline constexpr int kAccurate = 0;  // the method of inverse transforms

#define EDGEDEPLOY_JPEG_FUNCTIONS(FUNCTION)                                                      \
  FUNCTION(jpeg_std_error, ErrorManager*, (ErrorManager*))                                       \
  FUNCTION(jpeg_CreateDecompress, void, (Decompression*, int version, size_t size))              \
  FUNCTION(jpeg_destroy_decompress, void, (Decompression*))                                      \
  FUNCTION(jpeg_resync_to_restart, int, (Decompression*, int desired))                           \
  FUNCTION(jpeg_read_header, int, (Decompression*, int require_image))                           \
  FUNCTION(jpeg_start_decompress, int, (Decompression*))                                         \
  FUNCTION(jpeg_read_scanlines, unsigned, (Decompression*, unsigned char** rows, unsigned most)) \
  FUNCTION(jpeg_finish_decompress, int, (Decompression*))                                        \
  FUNCTION(jpeg_CreateCompress, void, (Compression*, int version, size_t size))                  \
  FUNCTION(jpeg_destroy_compress, void, (Compression*))                                          \
  FUNCTION(jpeg_mem_dest, void, (Compression*, unsigned char** content, unsigned long* size))    \
  FUNCTION(jpeg_set_defaults, void, (Compression*))                                              \
  FUNCTION(jpeg_set_quality, void, (Compression*, int quality, int baseline))                    \
  FUNCTION(jpeg_start_compress, void, (Compression*, int all_tables))                            \
  FUNCTION(jpeg_write_scanlines, unsigned, (Compression*, unsigned char** rows, unsigned count)) \
  FUNCTION(jpeg_finish_compress, void, (Compression*))

struct Api {
  Version version;
#define EDGEDEPLOY_JPEG_DECLARE(name, result, parameters) result(*name) parameters;
  EDGEDEPLOY_JPEG_FUNCTIONS(EDGEDEPLOY_JPEG_DECLARE)
#undef EDGEDEPLOY_JPEG_DECLARE
};

}  // namespace agent::jpeg
