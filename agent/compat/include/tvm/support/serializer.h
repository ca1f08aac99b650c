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

template <typename Sequence, typename Item>
struct SequenceSerializer {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const Sequence& items) {
    stream->Write<uint64_t>(items.size());
    if constexpr (kIsPlain<Item>) {
      stream->Write(static_cast<const void*>(items.data()), items.size() * sizeof(Item));
    } else {
      for (const Item& item : items) stream->Write(item);
    }
  }
  static bool Read(Stream* stream, Sequence* items) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    if constexpr (kIsPlain<Item>) {
      return ReadItems(stream, items, count);
    } else {
      items->clear();
      for (uint64_t i = 0; i < count; ++i) {
        if (!stream->Read(&items->emplace_back())) return false;
      }
      return true;
    }
  }
};

template <>
struct Serializer<std::string> : SequenceSerializer<std::string, char> {};

template <typename T>
struct Serializer<std::vector<T>> : SequenceSerializer<std::vector<T>, T> {};

// TVM's own containers look as those of the standard library.
template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::String& value) { stream->Write(std::string(value)); }
  static bool Read(Stream* stream, ffi::String* value) {
    std::string text;
    const bool whole = stream->Read(&text);
    *value = ffi::String(std::move(text));
    return whole;
  }
};

template <typename T>
struct Serializer<ffi::Array<T>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::Array<T>& values) {
    stream->Write(std::vector<T>(values.begin(), values.end()));
  }
  static bool Read(Stream* stream, ffi::Array<T>* values) {
    std::vector<T> items;
    const bool whole = stream->Read(&items);
    *values = ffi::Array<T>(items.begin(), items.end());
    return whole;
  }
};

}  // namespace support
}  // namespace tvm
