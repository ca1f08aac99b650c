// A stream of bytes that values are written to and read from.
#pragma once

#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstdint>

// All targets of the agent are little-endian, as TVM's files are.
#ifndef TVM_FFI_IO_NO_ENDIAN_SWAP
#define TVM_FFI_IO_NO_ENDIAN_SWAP 1
#endif

namespace tvm {
namespace support {

template <typename T, typename = void>
struct Serializer;

class Stream {
 public:
  virtual ~Stream() = default;

  // Up to `size` bytes; returns how many there were.
  virtual size_t Read(void* data, size_t size) = 0;
  virtual size_t Write(const void* data, size_t size) = 0;

  template <typename T>
  void Write(const T& value) {
    Serializer<T>::Write(this, value);
  }
  // Returns whether the stream held a whole value.
  template <typename T>
  bool Read(T* value) {
    return Serializer<T>::Read(this, value);
  }

  // Values without their count.
  template <typename T>
  void WriteArray(const T* values, size_t count) {
    for (size_t i = 0; i < count; ++i) Write(values[i]);
  }
  template <typename T>
  bool ReadArray(T* values, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!Read(values + i)) return false;
    }
    return true;
  }
  void WriteArray(const char* bytes, size_t count) { Write(static_cast<const void*>(bytes), count); }
  void WriteArray(const uint8_t* bytes, size_t count) { Write(static_cast<const void*>(bytes), count); }
  bool ReadArray(char* bytes, size_t count) { return Read(static_cast<void*>(bytes), count) == count; }
  bool ReadArray(uint8_t* bytes, size_t count) { return Read(static_cast<void*>(bytes), count) == count; }
};

}  // namespace support
}  // namespace tvm

#include <tvm/support/serializer.h>
