// How values look in a stream. Compiled networks and RPC messages hold them, so the layout is TVM's own:
// numbers, enumerations, DLDataType and DLDevice as they lie in memory; everything with a length as a uint64
// count and its items.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tvm {
namespace support {

template <typename T>
inline constexpr bool kIsPlain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, DLDataType> || std::is_same_v<T, DLDevice>;

// Reads `count` plain items. Memory grows with what arrives: a count in damaged data costs nothing.
template <typename Sequence>
bool ReadItems(Stream* stream, Sequence* items, uint64_t count) {
  constexpr uint64_t kChunk = 1 << 20;
  items->clear();
  while (count > 0) {
    const size_t have = items->size();
    const size_t more = static_cast<size_t>(std::min(count, kChunk));
    items->resize(have + more);
    const size_t bytes = more * sizeof((*items)[0]);
    if (stream->Read(static_cast<void*>(&(*items)[have]), bytes) != bytes) return false;
    count -= more;
  }
  return true;
}

template <typename T>
struct Serializer<T, std::enable_if_t<kIsPlain<T>>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const T& value) { stream->Write(static_cast<const void*>(&value), sizeof(T)); }
  static bool Read(Stream* stream, T* value) { return stream->Read(static_cast<void*>(value), sizeof(T)) == sizeof(T); }
};

template <>
struct Serializer<std::string> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::string& value) {
    stream->Write<uint64_t>(value.size());
    stream->Write(static_cast<const void*>(value.data()), value.size());
  }
  static bool Read(Stream* stream, std::string* value) {
    uint64_t count = 0;
    return stream->Read(&count) && ReadItems(stream, value, count);
  }
};

template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::String& value) {
    stream->Write<uint64_t>(value.size());
    stream->Write(static_cast<const void*>(value.data()), value.size());
  }
  static bool Read(Stream* stream, ffi::String* value) {
    std::string text;
    if (!Serializer<std::string>::Read(stream, &text)) return false;
    *value = ffi::String(std::move(text));
    return true;
  }
};

template <typename T>
struct Serializer<std::vector<T>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::vector<T>& values) {
    stream->Write<uint64_t>(values.size());
    if constexpr (kIsPlain<T>) {
      stream->Write(static_cast<const void*>(values.data()), values.size() * sizeof(T));
    } else {
      for (const T& value : values) stream->Write(value);
    }
  }
  static bool Read(Stream* stream, std::vector<T>* values) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    if constexpr (kIsPlain<T>) {
      return ReadItems(stream, values, count);
    } else {
      values->clear();
      for (uint64_t i = 0; i < count; ++i) {
        T value{};
        if (!stream->Read(&value)) return false;
        values->push_back(std::move(value));
      }
      return true;
    }
  }
};

template <typename T>
struct Serializer<ffi::Array<T>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::Array<T>& values) {
    stream->Write<uint64_t>(values.size());
    for (const T& value : values) stream->Write(value);
  }
  static bool Read(Stream* stream, ffi::Array<T>* values) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    ffi::Array<T> read;
    for (uint64_t i = 0; i < count; ++i) {
      T value{};
      if (!stream->Read(&value)) return false;
      read.push_back(value);
    }
    *values = std::move(read);
    return true;
  }
};

}  // namespace support
}  // namespace tvm
